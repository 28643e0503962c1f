package customerpages

import (
	"slices"
	"strings"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
)

// pivotView is a table of usage totals, with a chart if it is by day.
type pivotView struct {
	// Filter are the values of the filter bar. To is the last day, which is included.
	Filter struct {
		AccountID, ProjectID, KeyID, Model, From, To string
		By                                           []string
	}
	Groups []choice
	List   *adminclient.UsageTotalList
	Pages  kit.Pages
	// ByAccount is set if the page is about all accounts.
	ByAccount bool
	// Sum is the total of the filter, also of what is on other pages; nil if there is nothing.
	Sum *adminclient.UsageTotal
	// Chart is set if a chart draws the table.
	Chart  bool
	Export string
	// Providers has the cost by day and provider; nil if the page is about some requests only.
	Providers *kit.Chart
	// Names are the names of accounts, projects and keys by their ids.
	Names map[string]string
}

// choice is a dimension of the pivot.
type choice struct {
	Value, Text string
	Chosen      bool
}

// dimensions are those of the API, in the order of the columns.
var dimensions = []choice{
	{Value: "day", Text: "Day"},
	{Value: "account", Text: "Account"},
	{Value: "project", Text: "Project"},
	{Value: "key", Text: "Key"},
	{Value: "model", Text: "Model"},
	{Value: "service_tier", Text: "Service tier"},
}

// By reports whether the table has a column of a dimension.
func (p *pivotView) By(dimension string) bool { return slices.Contains(p.Filter.By, dimension) }

// pivot reads the totals that the query asks for. account is empty for all accounts.
func pivot(r *kit.Request, account string) (*pivotView, string, error) {
	p := &pivotView{ByAccount: account == ""}
	f := &p.Filter
	today := time.Now().UTC()
	f.AccountID, f.ProjectID, f.KeyID, f.Model, f.By = account, r.Text("project_id"), r.Text("key_id"), r.Text("model"), r.Form["by"]
	if account == "" {
		f.AccountID = r.Text("account_id")
	}

	f.From, f.To = dayOf(r.Text("from")), dayOf(r.Text("to"))
	if !r.Form.Has("from") {
		f.From, f.To = today.AddDate(0, 0, -29).Format(time.DateOnly), today.Format(time.DateOnly)
	}
	if len(f.By) == 0 {
		f.By = []string{"day"}
	}

	after := ""
	if f.To != "" {
		last, err := time.Parse(time.DateOnly, f.To)
		if err != nil {
			return nil, "", kit.Invalid("to", "must be a day such as 2026-01-31")
		}
		after = last.AddDate(0, 0, 1).Format(time.DateOnly)
	}

	params := &adminclient.GetUsageTotalsParams{
		AccountID: kit.Optional(f.AccountID),
		ProjectID: kit.Optional(f.ProjectID),
		KeyID:     kit.Optional(f.KeyID),
		Model:     kit.Optional(f.Model),
		From:      kit.Optional(f.From),
		To:        kit.Optional(after),
		Cursor:    kit.Cursor(r),
		Limit:     new(200),
	}

	for _, d := range dimensions {
		if d.Value == "account" && account != "" {
			continue
		}
		if d.Chosen = slices.Contains(f.By, d.Value); d.Chosen {
			params.GroupBy = append(params.GroupBy, adminclient.UsageGroup(d.Value))
		}
		p.Groups = append(p.Groups, d)
	}

	answer, err := r.API.GetUsageTotals(r.Context(), params)
	if err != nil {
		return nil, "", err
	}

	p.List, p.Pages = answer.Value, kit.PagesOf(r, answer.Value.NextCursor)
	p.Chart = len(params.GroupBy) == 1 && p.By("day") && len(p.List.Data) > 1

	command := kit.Command("usage-totals get", "--group-by", strings.Join(f.By, ","), "--account-id", f.AccountID,
		"--project-id", f.ProjectID, "--key-id", f.KeyID, "--model", f.Model, "--from", f.From, "--to", after)

	params.GroupBy, params.Cursor, params.Limit = nil, nil, nil
	sum, err := r.API.GetUsageTotals(r.Context(), params)
	if err != nil {
		return nil, "", err
	}
	if len(sum.Value.Data) == 1 && sum.Value.Data[0].Requests > 0 {
		p.Sum = &sum.Value.Data[0]
	}

	p.Export = kit.Path(
		"requests",
		"export",
	) + "?" +
		kit.Query("account_id", f.AccountID, "project_id", f.ProjectID, "key_id", f.KeyID, "model", f.Model, "from", f.From, "to", after)
	p.Names, err = names(r, p.List.Data)
	return p, command, err
}

// names returns the names of the accounts, projects and keys of totals by their ids.
func names(r *kit.Request, totals []adminclient.UsageTotal) (map[string]string, error) {
	var ids []string
	for _, t := range totals {
		for _, id := range []*string{t.AccountID, t.ProjectID, t.KeyID} {
			if id != nil {
				ids = append(ids, *id)
			}
		}
	}
	return kit.Names(r, ids)
}

// dayOf returns the day of a time. A chart puts times into the address.
func dayOf(at string) string {
	day, _, _ := strings.Cut(at, "T")
	return day
}

// byProvider reads the cost of the days by provider. The last day is included.
func (p *pivotView) byProvider(r *kit.Request) error {
	from, err := kit.Moment("from", p.Filter.From)
	if err != nil {
		return err
	}

	to, err := kit.Moment("to", p.Filter.To)
	if err != nil {
		return err
	}
	if to != nil {
		to = new(to.AddDate(0, 0, 1))
	}

	series, err := r.API.GetTrafficSeries(r.Context(), &adminclient.GetTrafficSeriesParams{
		Measure: adminclient.GetTrafficSeriesParamsMeasureCost,
		By:      new(adminclient.GetTrafficSeriesParamsByProvider),
		Step:    new(adminclient.GetTrafficSeriesParamsStepN1D),
		From:    from,
		To:      to,
	})
	if err != nil {
		return err
	}

	p.Providers = &kit.Chart{ID: "providers", Title: "Charged by provider", Unit: p.List.Currency}
	p.Providers.Stack(series.Value, nil)
	return nil
}

func showUsage(r *kit.Request) (*kit.Page, error) {
	p, command, err := pivot(r, "")
	if err != nil {
		return nil, err
	}
	if f := &p.Filter; f.AccountID+f.ProjectID+f.KeyID+f.Model == "" && p.Sum != nil {
		if err := p.byProvider(r); err != nil {
			return nil, err
		}
	}
	return &kit.Page{
		Template: "usage",
		Title:    "Usage",
		Command:  command,
		Data:     p,
	}, nil
}

type accountUsageView struct {
	*head
	Pivot *pivotView
}

func accountUsage(r *kit.Request) (*kit.Page, error) {
	h, err := account(r, "usage")
	if err != nil {
		return nil, err
	}
	p, command, err := pivot(r, h.ID)
	if err != nil {
		return nil, err
	}
	return h.page("account_usage", "Usage", command, &accountUsageView{h, p}), nil
}
