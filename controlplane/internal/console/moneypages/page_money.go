package moneypages

import (
	"fmt"
	"io"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
)

// kinds are the checks, with what they compare, those of the whole first.
var kinds = []struct {
	Kind       adminclient.LedgerCheckKind
	Name, Text string
	// Started is set for those that a person starts.
	Started bool
}{
	{adminclient.LedgerCheckKindChanged, "New records", "Every record written since the last check. It runs every minute.", false},
	{
		adminclient.LedgerCheckKindRecent,
		"All but old usage",
		"Every invariant, without usage records of earlier days. It runs every hour.",
		false,
	},
	{adminclient.LedgerCheckKindAll, "Everything", "Every invariant of ledger, pools and usage. It may run for minutes.", true},
	{
		adminclient.LedgerCheckKindReceipts,
		"Receipts",
		"Every receipt is computed again from its price sheet. It may run for minutes.",
		true,
	},
}

// nameOf returns the name of a kind of check.
func nameOf(kind adminclient.LedgerCheckKind) string {
	for _, k := range kinds {
		if k.Kind == kind {
			return k.Name
		}
	}
	return string(kind)
}

// runView is a run with the name of its kind.
type runView struct {
	adminclient.LedgerCheckRun
	Name string
}

// last is the last run of a kind of check; Run is nil if there is none.
type last struct {
	Name, Text string
	Kind       adminclient.LedgerCheckKind
	Run        *adminclient.LedgerCheckRun
	Start      string
}

type checksView struct {
	Last  []last
	Books *adminclient.LedgerBooks
	From  string
	// To is the last day, which is included.
	To   string
	Runs []runView
	// Kind is the kind of the listed runs; empty for all.
	Kind   string
	Pages  kit.Pages
	Export string
}

// showChecks shows the last run of every check, the books, and the runs over time.
func showChecks(r *kit.Request) (*kit.Page, error) {
	v := &checksView{From: r.Text("from"), To: r.Text("to"), Kind: r.Text("kind")}
	for _, k := range kinds {
		runs, err := r.API.ListLedgerChecks(r.Context(), &adminclient.ListLedgerChecksParams{Kind: &k.Kind, Limit: new(1)})
		if err != nil {
			return nil, err
		}
		l := last{Name: k.Name, Text: k.Text, Kind: k.Kind}
		if len(runs.Value.Data) > 0 {
			l.Run = &runs.Value.Data[0]
		}
		if k.Started && r.May(kit.Operator) {
			l.Start = "/console/money/start?" + kit.Query("kind", string(k.Kind))
		}
		v.Last = append(v.Last, l)
	}

	after, err := dayAfter(v.To)
	if err != nil {
		return nil, err
	}

	books, err := r.API.GetLedgerBooks(r.Context(), &adminclient.GetLedgerBooksParams{From: kit.Optional(v.From), To: kit.Optional(after)})
	if err != nil {
		return nil, err
	}

	params := &adminclient.ListLedgerChecksParams{Cursor: kit.Cursor(r), Limit: new(20)}
	if v.Kind != "" {
		params.Kind = new(adminclient.LedgerCheckKind(v.Kind))
	}

	runs, err := r.API.ListLedgerChecks(r.Context(), params)
	if err != nil {
		return nil, err
	}

	for _, run := range runs.Value.Data {
		v.Runs = append(v.Runs, runView{run, nameOf(run.Kind)})
	}

	v.Books, v.Pages = books.Value, kit.PagesOf(r, runs.Value.NextCursor)
	v.Export = "/console/money/export?" + kit.Query("from", v.From, "to", after)
	return &kit.Page{
		Template: "money",
		Title:    "Money check",
		Data:     v,
		Command: kit.Command(
			"ledger-checks list",
			"--kind",
			v.Kind,
		) + "\n" +
			kit.Command("ledger-books get", "--from", v.From, "--to", after),
	}, nil
}

// dayAfter returns the day after one of a form; "" for "".
func dayAfter(day string) (string, error) {
	if day == "" {
		return "", nil
	}
	at, err := time.Parse(time.DateOnly, day)
	if err != nil {
		return "", kit.Invalid("to", "must be a day such as 2026-01-31")
	}
	return at.AddDate(0, 0, 1).Format(time.DateOnly), nil
}

// showRun shows a run with every invariant.
func showRun(r *kit.Request) (*kit.Page, error) {
	answer, err := r.API.GetLedgerCheck(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return &kit.Page{
		Template: "money_run",
		Title:    "Check of the ledger",
		Crumbs:   above,
		Data:     &runView{*answer.Value, nameOf(answer.Value.Kind)},
		Command:  "gwctl ledger-checks get " + answer.Value.ID,
	}, nil
}

var above = []kit.Link{{Text: "Money check", URL: "/console/money"}}

// startCheck is the form that starts a check.
func startCheck(r *kit.Request) (*kit.Form, error) {
	field := kit.Field{
		Name:     "kind",
		Label:    "Check",
		Kind:     "select",
		Required: true,
		Value:    r.Text("kind"),
	}

	for _, k := range kinds {
		if k.Started {
			field.Options = append(field.Options, kit.Option{Value: string(k.Kind), Text: k.Name + ": " + k.Text})
		}
	}

	return &kit.Form{
		Title:   "Start a check",
		Crumbs:  above,
		Submit:  "Start check",
		Back:    "/console/money",
		Command: "gwctl ledger-checks start --kind KIND",
		Fields:  []kit.Field{field},
		Effects: []string{
			"A control plane reads the records in the background. Nothing is changed. If a run of the kind is open, its page is shown.",
		},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			run, err := r.API.StartLedgerCheck(r.Context(), &adminclient.StartLedgerCheckParams{IdempotencyKey: in.Key()},
				adminclient.LedgerCheckStart{Kind: adminclient.LedgerCheckStartKind(in.Text("kind"))})
			if err != nil {
				return nil, err
			}
			return kit.Go(kit.Path("money", "checks", run.Value.ID), kit.Done("The check has been started."))
		},
	}, nil
}

// exportLedger sends the entries of the ledger as CSV.
func exportLedger(r *kit.Request) (*kit.Page, error) {
	from, err := kit.Moment("from", r.Text("from"))
	if err != nil {
		return nil, err
	}

	to, err := kit.Moment("to", r.Text("to"))
	if err != nil {
		return nil, err
	}

	export, err := r.API.ExportLedger(
		r.Context(),
		&adminclient.ExportLedgerParams{From: from, To: to, Format: new(adminclient.ExportFormatCSV)},
	)
	if err != nil {
		return nil, err
	}

	return &kit.Page{Download: &kit.Download{Name: "ledger.csv", MediaType: "text/csv; charset=utf-8", CopyTo: func(w io.Writer) error {
		if _, err := export.CopyTo(w); err != nil {
			return fmt.Errorf("send the ledger: %w", err)
		}
		return nil
	}}}, nil
}
