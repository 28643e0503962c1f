package moneypages

import (
	"cmp"
	"fmt"
	"io"
	"net/url"
	"slices"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
)

// marginFilter are the values of the filter bar, as they were entered. To is the last day, which is included.
type marginFilter struct {
	By, AccountID, KeyID, ProjectID, Model, Provider, Route, Credential, Zone, From, To string
}

// query returns the query of a page with another kind of line and other days.
func (f *marginFilter) query(by, from, to string) string {
	return kit.Query("by", by, "account_id", f.AccountID, "key_id", f.KeyID, "project_id", f.ProjectID, "model", f.Model,
		"provider", f.Provider, "route", f.Route, "credential", f.Credential, "time_zone", f.Zone, "from", from, "to", to)
}

// narrowed returns the filter for the calls of a line.
func (f *marginFilter) narrowed(l *adminclient.MarginLine) marginFilter {
	n := *f
	switch l.By {
	case adminclient.MarginByDay:
		n.From, n.To = l.Name, l.Name
	case adminclient.MarginByAccount:
		n.AccountID = l.Name
	case adminclient.MarginByProject:
		n.ProjectID = l.Name
	case adminclient.MarginByKey:
		n.KeyID = l.Name
	case adminclient.MarginByModel:
		n.Model = l.Name
	case adminclient.MarginByProvider:
		n.Provider = l.Name
	case adminclient.MarginByRoute:
		n.Route = l.Name
	case adminclient.MarginByCredential:
		if n.Credential = l.Name; l.Provider != nil {
			n.Provider = *l.Provider
		}
	}
	return n
}

type marginLine struct {
	*adminclient.MarginLine
	// Within is the address of the same report about this line only, Requests that of its requests, Object that of what it is about.
	Within, Requests, Object string
	Lost                     bool
}

type marginView struct {
	Filter marginFilter
	Kinds  []adminclient.MarginBy
	Report *adminclient.MarginReport
	Lines  []marginLine
	Chart  *kit.Chart
	Pages  kit.Pages
	// Yesterday is the address of the report about yesterday by route, Export that of the file.
	Yesterday, Export string
	Lost              bool
}

var marginKinds = []adminclient.MarginBy{
	adminclient.MarginByRoute,
	adminclient.MarginByModel,
	adminclient.MarginByAccount,
	adminclient.MarginByKey,
	adminclient.MarginByProject,
	adminclient.MarginByProvider,
	adminclient.MarginByCredential,
	adminclient.MarginByDay,
}

func readMarginFilter(r *kit.Request) marginFilter {
	return marginFilter{
		By:         cmp.Or(r.Text("by"), string(adminclient.MarginByRoute)),
		AccountID:  r.Text("account_id"),
		KeyID:      r.Text("key_id"),
		ProjectID:  r.Text("project_id"),
		Model:      r.Text("model"),
		Provider:   r.Text("provider"),
		Route:      r.Text("route"),
		Credential: r.Text("credential"),
		Zone:       r.Text("time_zone"),
		From:       r.Text("from"),
		To:         r.Text("to"),
	}
}

// dayAfter returns the day after the last one of a filter, for the API; nil for none.
func (f *marginFilter) dayAfter() (*string, error) {
	if f.To == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	last, err := time.Parse(time.DateOnly, f.To)
	if err != nil {
		return nil, kit.Invalid("to", "must be a day such as 2026-01-31")
	}
	return new(last.AddDate(0, 0, 1).Format(time.DateOnly)), nil
}

func (f *marginFilter) params() (*adminclient.GetMarginParams, error) {
	to, err := f.dayAfter()
	return &adminclient.GetMarginParams{
		By:         new(adminclient.MarginBy(f.By)),
		AccountID:  kit.Optional(f.AccountID),
		KeyID:      kit.Optional(f.KeyID),
		ProjectID:  kit.Optional(f.ProjectID),
		Model:      kit.Optional(f.Model),
		Provider:   kit.Optional(f.Provider),
		Route:      kit.Optional(f.Route),
		Credential: kit.Optional(f.Credential),
		TimeZone:   kit.Optional(f.Zone),
		From:       kit.Optional(f.From),
		To:         to,
	}, err
}

// showMargin compares charges with provider costs, worst first.
func showMargin(r *kit.Request) (*kit.Page, error) {
	data := &marginView{Filter: readMarginFilter(r), Kinds: marginKinds}
	f := &data.Filter
	params, err := f.params()
	if err != nil {
		return nil, err
	}

	params.Cursor, params.Limit = kit.Cursor(r), new(kit.PageSize)
	answer, err := r.API.GetMargin(r.Context(), params)
	if err != nil {
		return nil, err
	}

	data.Report, data.Pages = answer.Value, kit.PagesOf(r, answer.Value.NextCursor)
	last, err := time.Parse(time.DateOnly, data.Report.To)
	if err != nil {
		return nil, fmt.Errorf("read the days of the margin: %w", err)
	}
	f.From, f.To, f.Zone = data.Report.From, last.AddDate(0, 0, -1).Format(time.DateOnly), data.Report.TimeZone
	data.Lost = isNegative(data.Report.Total.Margin)

	for i := range data.Report.Data {
		data.Lines = append(data.Lines, f.line(&data.Report.Data[i]))
	}

	if data.Chart, err = marginChart(r, params, data.Report.Currency); err != nil {
		return nil, err
	}

	yesterday := time.Now().UTC().AddDate(0, 0, -1).Format(time.DateOnly)
	data.Yesterday = "/console/margin?" + kit.Query("by", "route", "from", yesterday, "to", yesterday)
	data.Export = "/console/margin/export?" + f.query(f.By, f.From, f.To)
	return &kit.Page{
		Template: "margin",
		Title:    "Margin",
		Data:     data,
		Command: kit.Command("margin get", "--by", f.By, "--account-id", f.AccountID, "--key-id", f.KeyID, "--project-id", f.ProjectID,
			"--model", f.Model, "--provider", f.Provider, "--route", f.Route, "--credential", f.Credential,
			"--time-zone", f.Zone, "--from", data.Report.From, "--to", data.Report.To),
	}, nil
}

func isNegative(amount string) bool { return len(amount) > 0 && amount[0] == '-' }

// line returns a line with its addresses. The list of requests has days of UTC only, and knows no projects.
func (f *marginFilter) line(l *adminclient.MarginLine) marginLine {
	line := marginLine{MarginLine: l, Lost: isNegative(l.Margin)}
	if l.Name == "" {
		return line
	}
	n := f.narrowed(l)
	by := map[adminclient.MarginBy]string{
		adminclient.MarginByRoute: "model",
		adminclient.MarginByDay:   "route",
		adminclient.MarginByKey:   "route",
	}[l.By]
	line.Object = objectOf(l)
	line.Within = "/console/margin?" + n.query(cmp.Or(by, "route"), n.From, n.To)
	last, err := time.Parse(time.DateOnly, n.To)
	if n.ProjectID == "" && n.Zone == time.UTC.String() && err == nil {
		line.Requests = "/console/requests?" + kit.Query("account_id", n.AccountID, "key_id", n.KeyID, "model", n.Model,
			"provider", n.Provider, "route", n.Route, "credential", n.Credential,
			"from", n.From+"T00:00:00", "to", last.AddDate(0, 0, 1).Format(time.DateOnly)+"T00:00:00")
	}
	return line
}

// objectOf returns the address of what a line is about; empty for a day, and for what was deleted. A route is on the page of its model.
func objectOf(l *adminclient.MarginLine) string {
	page := map[adminclient.MarginBy]string{
		adminclient.MarginByAccount:    "accounts",
		adminclient.MarginByProject:    "projects",
		adminclient.MarginByKey:        "keys",
		adminclient.MarginByModel:      "models",
		adminclient.MarginByRoute:      "models",
		adminclient.MarginByProvider:   "providers",
		adminclient.MarginByCredential: "providers",
	}[l.By]
	id := &l.Name
	switch {
	case l.Label == nil:
		return ""
	case l.By == adminclient.MarginByRoute:
		id = l.Model
	case l.By == adminclient.MarginByCredential:
		id = l.Provider
	}
	if page == "" || id == nil {
		return ""
	}
	return "/console/" + page + "/" + url.PathEscape(*id)
}

// marginChart reads charges and provider costs by day; nil if there is but one.
func marginChart(r *kit.Request, of *adminclient.GetMarginParams, currency string) (*kit.Chart, error) {
	params := *of
	params.By, params.Cursor, params.Limit = new(adminclient.MarginByDay), nil, nil
	answer, err := r.API.GetMargin(r.Context(), &params)
	if err != nil {
		return nil, err
	}
	days := answer.Value.Data
	if len(days) < 2 {
		return nil, nil //nolint:nilnil // a line needs two points
	}

	slices.SortFunc(days, func(a, b adminclient.MarginLine) int { return cmp.Compare(a.Name, b.Name) })
	chart := &kit.Chart{
		ID:    "margin",
		Title: "Charged and paid by day",
		Unit:  currency,
		Kind:  "lines",
		Columns: []kit.ChartColumn{
			{Name: "charged", Colour: "s1"},
			{Name: "provider cost", Colour: "bad"},
			{Name: "of it charged to nobody", Colour: "warn"},
		},
		Exact: true,
	}
	for i := range days {
		at, err := time.Parse(time.DateOnly, days[i].Name)
		if err != nil {
			return nil, fmt.Errorf("read a day of the margin: %w", err)
		}
		values := []string{days[i].Charged, days[i].ProviderCost, days[i].Loss}
		chart.Rows = append(chart.Rows, kit.ChartRow{At: at, Known: true, Values: values})
	}
	return chart, nil
}

// exportMargin sends the report of a filter as CSV.
func exportMargin(r *kit.Request) (*kit.Page, error) {
	f := readMarginFilter(r)
	params, err := f.params()
	if err != nil {
		return nil, err
	}

	export, err := r.API.ExportMargin(r.Context(), &adminclient.ExportMarginParams{
		By:         params.By,
		AccountID:  params.AccountID,
		KeyID:      params.KeyID,
		ProjectID:  params.ProjectID,
		Model:      params.Model,
		Provider:   params.Provider,
		Route:      params.Route,
		Credential: params.Credential,
		TimeZone:   params.TimeZone,
		From:       params.From,
		To:         params.To,
		Format:     new(adminclient.ExportFormatCSV),
	})
	if err != nil {
		return nil, err
	}

	return &kit.Page{Download: &kit.Download{Name: "margin.csv", MediaType: "text/csv; charset=utf-8", CopyTo: func(w io.Writer) error {
		if _, err := export.CopyTo(w); err != nil {
			return fmt.Errorf("send the margin: %w", err)
		}
		return nil
	}}}, nil
}
