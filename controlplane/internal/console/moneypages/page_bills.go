package moneypages

import (
	"fmt"
	"net/http"
	"strconv"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
	"modelgateway/controlplane/internal/console/view"
)

var aboveBill = []kit.Link{{Text: "Provider bills", URL: "/console/bills"}}

type billsView struct {
	Bills []adminclient.Bill
	Pages kit.Pages
}

// listBills lists the bills of providers.
func listBills(r *kit.Request) (*kit.Page, error) {
	answer, err := r.API.ListBills(r.Context(), &adminclient.ListBillsParams{Cursor: kit.Cursor(r), Limit: new(kit.PageSize)})
	if err != nil {
		return nil, err
	}
	return &kit.Page{
		Template: "bills",
		Title:    "Provider bills",
		Command:  "gwctl bills list",
		Data:     &billsView{answer.Value.Data, kit.PagesOf(r, answer.Value.NextCursor)},
	}, nil
}

// partView is a part of a difference with what its kind means.
type partView struct {
	adminclient.BillPart
	Meaning string
}

// meanings tell what a kind of difference is.
var meanings = map[adminclient.BillDifferenceKind]string{
	adminclient.BillDifferenceKindUnexplained:     "What is left of a day, model and credential.",
	adminclient.BillDifferenceKindPrice:           "The request has another amount on the bill.",
	adminclient.BillDifferenceKindBilledTwice:     "The bill has the line more than once.",
	adminclient.BillDifferenceKindNotBilled:       "The bill lacks it.",
	adminclient.BillDifferenceKindNoPrice:         "The route had no provider price at the time.",
	adminclient.BillDifferenceKindUnknownCall:     "The gateway did not make the call: somebody else uses the credential.",
	adminclient.BillDifferenceKindOurEstimate:     "The usage was estimated, because the provider reported none.",
	adminclient.BillDifferenceKindCancelledStream: "The call ended before its answer was complete.",
	adminclient.BillDifferenceKindRounding:        "The bill shows fewer places.",
	adminclient.BillDifferenceKindOtherDay:        "It is billed on the next day.",
	adminclient.BillDifferenceKindOtherLine:       "It is billed on a line without a model.",
	adminclient.BillDifferenceKindAfterEnd:        "The request ended after the bill does.",
	adminclient.BillDifferenceKindCredited:        "The provider gave it back.",
}

func partViews(parts []adminclient.BillPart) []partView {
	views := make([]partView, len(parts))
	for i, p := range parts {
		views[i] = partView{p, meanings[p.Kind]}
	}
	return views
}

type billView struct {
	*adminclient.Bill
	// Unit is what amounts are in: the currency, or tokens.
	Unit, Percent string
	Parts         []partView
	Differences   []adminclient.BillDifference
	// All is set if those are listed that have nothing open, too.
	All                    bool
	Day, Model, Credential string
	Pages                  kit.Pages
	Accept                 bool
}

// unitOf returns what the amounts of a bill are in.
func unitOf(b *adminclient.Bill) string {
	switch {
	case b.Unit == adminclient.BillUnitTokens:
		return "tokens"
	case b.Currency != nil:
		return *b.Currency
	}
	return "the currency of the catalog"
}

func readBill(r *kit.Request) (*adminclient.Bill, error) {
	answer, err := r.API.GetBill(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return answer.Value, nil
}

// showBill shows a bill with its comparison, what is open first.
func showBill(r *kit.Request) (*kit.Page, error) {
	bill, err := readBill(r)
	if err != nil {
		return nil, err
	}

	v := &billView{
		Bill:       bill,
		Unit:       unitOf(bill),
		All:        r.Text("show") == "all",
		Day:        r.Text("day"),
		Model:      r.Text("model"),
		Credential: r.Text("credential"),
		Accept:     r.May(kit.Operator) && (bill.State == adminclient.BillStateOpen || bill.State == adminclient.BillStateOverdue),
	}
	if c := bill.Comparison; c != nil {
		v.Percent, v.Parts = fmt.Sprintf("%.3f %%", 100*c.OpenShare), partViews(c.Parts)
	}
	params := &adminclient.ListBillDifferencesParams{
		Open:       new(!v.All),
		Day:        kit.Optional(v.Day),
		Model:      kit.Optional(v.Model),
		Credential: kit.Optional(v.Credential),
		Cursor:     kit.Cursor(r),
		Limit:      new(kit.PageSize),
	}
	answer, err := r.API.ListBillDifferences(r.Context(), bill.ID, params)
	if err != nil {
		return nil, err
	}
	v.Differences, v.Pages = answer.Value.Data, kit.PagesOf(r, answer.Value.NextCursor)
	command := "gwctl bills differences " + bill.ID
	if !v.All {
		command += " --open"
	}
	return &kit.Page{
		Template: "bill",
		Title:    "Bill of " + bill.ProviderID,
		Crumbs:   aboveBill,
		Data:     v,
		Command:  kit.Command(command, "--day", v.Day, "--model", v.Model, "--credential", v.Credential),
	}, nil
}

type differenceView struct {
	Bill     *adminclient.Bill
	Unit     string
	Parts    []partView
	Requests []adminclient.BillRequest
	More     bool
	*adminclient.BillDifference
}

// showDifference shows the requests behind a difference.
func showDifference(r *kit.Request) (*kit.Page, error) {
	number, err := strconv.ParseInt(r.PathValue("number"), 10, 64)
	if err != nil {
		return nil, kit.NotFound()
	}
	bill, err := readBill(r)
	if err != nil {
		return nil, err
	}
	answer, err := r.API.GetBillDifference(r.Context(), bill.ID, number)
	if err != nil {
		return nil, err
	}

	found := answer.Value
	return &kit.Page{
		Template: "bill_difference",
		Title:    "Difference of " + found.Difference.Day,
		Crumbs:   append(aboveBill[:1:1], kit.Link{Text: "Bill of " + bill.ProviderID, URL: kit.Path("bills", bill.ID)}),
		Data:     &differenceView{bill, unitOf(bill), partViews(found.Difference.Parts), found.Requests, found.More, &found.Difference},
		Command:  "gwctl bills difference " + bill.ID + " " + strconv.FormatInt(number, 10),
	}, nil
}

// importBill is the form that takes the file of a bill.
func importBill(r *kit.Request) (*kit.Form, error) {
	catalog, err := r.API.GetCatalog(r.Context(), nil)
	if err != nil {
		return nil, err
	}
	provider := kit.Field{
		Name:     "provider",
		Label:    "Provider",
		Kind:     "select",
		Required: true,
	}
	for _, p := range catalog.Value.Providers {
		provider.Options = append(provider.Options, kit.Option{Value: p.ID})
	}

	return &kit.Form{
		Title:   "Import a bill",
		Crumbs:  aboveBill,
		Submit:  "Import and compare",
		Back:    "/console/bills",
		Command: "gwctl bills import FILE --provider PROVIDER",
		Fields: []kit.Field{
			{
				Name:     "file",
				Label:    "File",
				Kind:     "file",
				Required: true,
				Hint: "CSV or JSON, or packed with gzip: costs or usage of OpenAI, the cost report of Anthropic, AWS CUR, FOCUS, or a " +
					"table with a column day. Up to 16 MiB here, and 64 MiB with gwctl.",
			},
			provider,
			{
				Name:  "credential",
				Label: "Credential",
				Mono:  true,
				Hint: "The credential that all lines are about, or pairs such as proj_a=main,proj_b=batch. Empty: the bill has the " +
					"gateway's names, or is about all.",
			},
			{Name: "time_zone", Label: "Time zone of its days", Mono: true, Value: "UTC", Required: true},
			{Name: "name", Label: "Name", Hint: "For people, such as November 2026."},
		},
		Effects: []string{"The bill is compared with the usage records of its days. Nothing in the ledger changes."},
		Do:      sendBill,
	}, nil
}

func sendBill(r *kit.Request, in *kit.Input) (*kit.Page, error) {
	file := in.File("file")
	if len(file) == 0 {
		return nil, kit.Invalid("file", "must be chosen, and must not be empty")
	}
	answer, err := r.API.ImportBill(r.Context(), &adminclient.ImportBillParams{
		Provider:   in.Text("provider"),
		Credential: in.Optional("credential"),
		TimeZone:   in.Optional("time_zone"),
		Name:       in.Optional("name"),
	}, adminclient.WithBody("application/octet-stream", file))
	if err != nil {
		return nil, err
	}
	text := "The bill was imported and compared."
	if answer.StatusCode == http.StatusOK {
		text = "This file was imported before. This is its bill."
	}
	return kit.Go(kit.Path("bills", answer.Value.ID), kit.Done(text))
}

// acceptBill is the form that accepts what is open of a bill.
func acceptBill(r *kit.Request) (*kit.Form, error) {
	bill, err := readBill(r)
	if err != nil {
		return nil, err
	}
	back := kit.Path("bills", bill.ID)
	form := &kit.Form{
		Title:   "Accept the bill of " + bill.ProviderID,
		Crumbs:  aboveBill,
		Submit:  "Accept",
		Back:    back,
		Command: "gwctl bills accept " + bill.ID + " --reason REASON",
		Fields: []kit.Field{{
			Name:     "reason",
			Label:    "Reason",
			Required: true,
			Hint:     "It stays with the bill and in the audit log.",
		}},
		Effects: []string{"The bill raises no alert any more, and is not compared again."},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			_, err := r.API.AcceptBill(r.Context(), bill.ID, &adminclient.AcceptBillParams{IdempotencyKey: in.Key()},
				adminclient.BillAcceptance{Reason: in.Text("reason")})
			if err != nil {
				return nil, err
			}
			return kit.Go(back, kit.Done("The bill was accepted."))
		},
	}
	if c := bill.Comparison; c != nil {
		form.Effects = append([]string{"Open are " + view.Money(c.Open).Exact + " " + unitOf(bill) + "."}, form.Effects...)
	}
	return form, nil
}

// deleteBill is the form that deletes a bill.
func deleteBill(r *kit.Request) (*kit.Form, error) {
	bill, err := readBill(r)
	if err != nil {
		return nil, err
	}
	return &kit.Form{
		Title:   "Delete the bill of " + bill.ProviderID,
		Crumbs:  aboveBill,
		Submit:  "Delete",
		Danger:  true,
		Back:    kit.Path("bills", bill.ID),
		Command: "gwctl bills delete " + bill.ID,
		Effects: []string{
			"Its lines and its comparison are deleted. Nothing depends on them, and the file can be imported again.",
		},
		Do: func(r *kit.Request, _ *kit.Input) (*kit.Page, error) {
			if _, err := r.API.DeleteBill(r.Context(), bill.ID); err != nil {
				return nil, err
			}
			return kit.Go("/console/bills", kit.Done("The bill was deleted."))
		},
	}, nil
}
