package catalogpages

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strings"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
	"modelgateway/controlplane/internal/console/priceform"
)

// maxShown bounds the entries of a price list that a page names, of those that change nothing.
const maxShown = 100

// proposalView tells in a review how the price list compares with the catalog.
type proposalView struct {
	Currency string
	// Changed, Same, Absent and Refused are the models of the catalog by their result.
	Changed, Same, Absent, Refused []*adminclient.PriceListModel
	UnknownCount, OmittedCount     int
	Unknown                        []unknownRow
	Omitted                        []adminclient.PriceListOmission
}

type unknownRow struct {
	*adminclient.PriceListUnknown
	Price string
	// Form is the address of the form that adds the model.
	Form string
}

// Warned reports whether there is something to check before the prices are applied.
func (v *proposalView) Warned() bool {
	return len(v.Refused) > 0 || slices.ContainsFunc(v.Changed, func(m *adminclient.PriceListModel) bool { return len(m.Warnings) > 0 })
}

// Summary tells in a line what the list has for the models of the catalog.
func (v *proposalView) Summary() string {
	parts := []string{number(int64(len(v.Changed)), "new price")}
	for _, part := range []struct {
		models []*adminclient.PriceListModel
		text   string
	}{{v.Same, "the same price"}, {v.Absent, "no entry in the list"}, {v.Refused, "an entry that cannot be used"}} {
		if len(part.models) > 0 {
			parts = append(parts, number(int64(len(part.models)), "model")+" with "+part.text)
		}
	}
	return strings.Join(parts, " · ")
}

var catalogCrumbs = []kit.Link{{Text: "Change the catalog", URL: "/console/catalog"}}

// importPrices is the form that takes a price list. It leads to the review of the catalog with its prices.
func importPrices(*kit.Request) (*kit.Form, error) {
	return &kit.Form{
		Title:   "Import a price list",
		Crumbs:  catalogCrumbs,
		Submit:  "Compare with the catalog",
		Back:    "/console/catalog",
		Command: "gwctl prices propose --data @proposal.json",
		Fields: []kit.Field{
			{
				Name:     "prices",
				Label:    "Price list",
				Kind:     "file",
				Required: true,
				Accept:   ".json,application/json",
				Hint:     "A JSON file in the format of LiteLLM's model_prices_and_context_window.json, up to 8 MiB.",
			},
			{
				Name:  "providers",
				Label: "Only these providers",
				Mono:  true,
				Hint:  "As they are named in the list, such as openai, anthropic. Empty means all.",
			},
			{Name: "models", Label: "Only these models", Mono: true, Hint: "Names or patterns, such as example-*. Empty means all."},
			{Name: "markup", Label: "Markup", Mono: true, Hint: "On every price: a percentage such as 20%, or a factor such as 1.2."},
			{
				Name:     "currency",
				Label:    "Currency of the list",
				Mono:     true,
				Value:    "USD",
				Required: true,
				Hint:     "Prices are not converted: it must be the currency of the catalog.",
			},
		},
		Effects: []string{"Nothing is applied yet: the review shows each price before and after, and whom it reaches."},
		Do:      reviewPrices,
	}, nil
}

// reviewPrices compares the list with the catalog and shows the review.
func reviewPrices(r *kit.Request, in *kit.Input) (*kit.Page, error) {
	list := bytes.TrimPrefix(bytes.TrimSpace(in.File("prices")), []byte("\ufeff")) // some editors write a byte order mark
	if len(list) == 0 {
		return nil, kit.Invalid("prices", "must be chosen, and must not be empty")
	}

	body, err := json.Marshal(struct {
		Prices    json.RawMessage `json:"prices"`
		Providers []string        `json:"providers,omitempty"`
		Models    []string        `json:"models,omitempty"`
		Markup    string          `json:"markup,omitempty"`
		Currency  string          `json:"currency,omitempty"`
	}{json.RawMessage(list), words(in.Text("providers")), words(in.Text("models")), in.Text("markup"), in.Text("currency")})
	if err != nil {
		return nil, kit.Invalid("prices", "is not JSON: "+cause(err))
	}

	answer, err := r.API.ProposePriceList(
		r.Context(),
		adminclient.PriceListProposalCreate{},
		adminclient.WithBody("application/json", body),
	)
	switch adminclient.Code(err) {
	case "":
	case "body_too_large":
		return nil, kit.Invalid("prices", "is larger than 8 MiB")
	default:
		return nil, err
	}

	var sent struct {
		Document json.RawMessage `json:"document"`
	}

	if err := json.Unmarshal(answer.Body, &sent); err != nil {
		return nil, err
	}

	var document bytes.Buffer
	if err := json.Indent(&document, sent.Document, "", "  "); err != nil {
		return nil, err //nolint:wrapcheck // the console logs it with the path
	}

	v := &editorView{Document: document.String(), Match: answer.Header.Get("ETag"), List: proposal(answer.Value)}
	if err := v.review(r); err != nil {
		return nil, err
	}

	page := v.page()
	page.Crumbs, page.Command = catalogCrumbs, "gwctl prices propose --data @proposal.json"
	return page, nil
}

// cause returns the reason why a text is not JSON, without what was being encoded.
func cause(err error) string {
	text := err.Error()
	if at := strings.LastIndex(text, ": "); at >= 0 {
		text = text[at+2:]
	}
	return text
}

// words returns the names in a text, which are separated by commas or spaces.
func words(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\r' || r == '\t' })
}

func proposal(p *adminclient.PriceListProposal) *proposalView {
	v := &proposalView{
		Currency:     p.Currency,
		UnknownCount: p.UnknownCount,
		OmittedCount: p.OmittedCount,
		Omitted:      p.Omitted[:min(len(p.Omitted), maxShown)],
	}

	for i := range p.Models {
		m := &p.Models[i]
		into := map[adminclient.PriceListModelStatus]*[]*adminclient.PriceListModel{
			adminclient.PriceListModelStatusChanged: &v.Changed, adminclient.PriceListModelStatusSame: &v.Same,
			adminclient.PriceListModelStatusAbsent: &v.Absent, adminclient.PriceListModelStatusRefused: &v.Refused,
		}[m.Status]
		if into != nil {
			*into = append(*into, m)
		}
	}

	for i := range p.Unknown[:min(len(p.Unknown), maxShown)] {
		u := &p.Unknown[i]
		v.Unknown = append(v.Unknown, unknownRow{u, priceform.Text(&u.Price), addForm(u)})
	}

	return v
}

// addForm returns the address of the form that adds a model, filled with an entry of a price list.
func addForm(u *adminclient.PriceListUnknown) string {
	query := priceform.Query(nil, u.Price)
	maps.Copy(query, url.Values{
		"id":                       {u.Model},
		"type":                     {string(u.Type)},
		"routes[0].provider":       {u.Provider},
		"routes[0].upstream_model": {u.Model},
		"routes[0].formats":        u.Formats,
	})
	return "/console/catalog/new-model?" + query.Encode()
}

// review shows the changes that the document would make to the catalog that it was compared with.
func (v *editorView) review(r *kit.Request) error {
	would, err := v.apply(r, true)
	if err != nil {
		return err
	}
	v.Changes, v.Rows = would.Value, changes(would.Value)
	return nil
}
