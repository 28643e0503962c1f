package customerpages

import (
	"slices"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
	"modelgateway/controlplane/internal/console/view"
)

// head is what the pages of an account have in common.
type head struct {
	*adminclient.Account
	Tabs []kit.Tab
}

// tabs are the pages of an account, by the end of their address.
var tabs = []struct{ end, text, scope string }{
	{"", "Summary", kit.Read},
	{"keys", "Keys", kit.Read},
	{"projects", "Projects", kit.Read},
	{"limits", "Limits", kit.Read},
	{"usage", "Usage", kit.Read},
	{"credits", "Credits", kit.Read},
	{"ledger", "Ledger", kit.Read},
	{"statement", "Statement", kit.Read},
	{"alerts", "Alerts", kit.Read},
	{"models", "Models", kit.Read},
	{"money", "Money in use", kit.Observe},
	{"changes", "Changes", kit.Observe},
}

// account reads the account that the address names.
func account(r *kit.Request, current string) (*head, error) {
	answer, err := r.API.GetAccount(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	h := &head{Account: answer.Value}
	for _, tab := range tabs {
		if r.May(tab.scope) {
			address := kit.Path("accounts", h.ID)
			if tab.end != "" {
				address = kit.Path("accounts", h.ID, tab.end)
			}
			h.Tabs = append(h.Tabs, kit.Tab{Link: kit.Link{Text: tab.text, URL: address}, Current: tab.end == current})
		}
	}
	return h, nil
}

// page returns a page of the account.
func (h *head) page(template, title, command string, data any) *kit.Page {
	if title == "" {
		title = h.Name
	} else {
		title += " of " + h.Name
	}
	return &kit.Page{
		Template: template,
		Title:    title,
		Crumbs:   crumbs,
		Command:  command,
		Data:     data,
	}
}

// days is the number of days that the summary shows.
const days = 14

type summaryView struct {
	*head
	Bar []view.Part
	// Days are the charges of the last days, oldest first, and Total is their sum. Days without requests are nil.
	Days    []day
	Total   string
	Effects []effect
	Limits  *limitsView
}

// day is a column of the chart of charges.
type day struct {
	Name, Cost string
	Requests   int64
	Height     int
}

// effect is what the multipliers of an account do to the price of a model.
type effect struct {
	Model, Line, List, Multiplier, Charged string
	// Own is set if the multiplier is one of the model and not of the account.
	Own bool
}

// showAccount shows the money of an account and the effect of its multipliers.
func showAccount(r *kit.Request) (*kit.Page, error) {
	h, err := account(r, "")
	if err != nil {
		return nil, err
	}

	today := time.Now().UTC().Truncate(24 * time.Hour)
	first := today.AddDate(0, 0, 1-days)
	totals, err := r.API.GetUsageTotals(r.Context(), &adminclient.GetUsageTotalsParams{
		GroupBy:   []adminclient.UsageGroup{adminclient.UsageGroupDay},
		AccountID: &h.ID,
		From:      new(first.Format(time.DateOnly)),
		Limit:     new(days + 1),
	})
	if err != nil {
		return nil, err
	}

	models, err := r.API.ListModels(r.Context(), &adminclient.ListModelsParams{Limit: new(maxModels)})
	if err != nil {
		return nil, err
	}

	data := &summaryView{head: h, Effects: effects(h.Account, models.Value.Data), Bar: view.Bar(
		view.Part{
			Kind: "free",
			Name: "available",
			Text: h.Balance.Available,
		},
		view.Part{Kind: "held", Name: "held by running requests", Text: h.Balance.Reserved},
	)}
	data.Days, data.Total = byDay(first, totals.Value.Data)
	if data.Limits, err = limitSection(r, h.Account, []ownedLimits{limitsOfAccount(h.Account)}); err != nil {
		return nil, err
	}
	data.Limits.None, data.Limits.All = "The account has no limit that renews of its own.", kit.Path("accounts", h.ID, "limits")
	if data.Limits.MayChange {
		data.Limits.Add = kit.Path("accounts", h.ID, "limits", "new")
	}
	return h.page("account", "", "gwctl accounts get "+h.ID+"\n"+
		kit.Command("usage-totals get", "--account-id", h.ID, "--group-by", "day", "--from", first.Format(time.DateOnly)), data), nil
}

func byDay(first time.Time, totals []adminclient.UsageTotal) (all []day, sum string) {
	costs := make([]string, days)
	all, sum = make([]day, days), "0.00"
	for i := range all {
		all[i].Name, all[i].Cost = first.AddDate(0, 0, i).Format(time.DateOnly), "0.00"
		for _, t := range totals {
			if t.Day != nil && *t.Day == all[i].Name {
				all[i].Cost, all[i].Requests = t.Cost, t.Requests
				sum = view.Add(sum, t.Cost)
			}
		}
		costs[i] = all[i].Cost
	}

	for i, height := range view.Columns(costs) {
		all[i].Height = height
	}

	return all, sum
}

// effects returns what the multipliers do to three models, those with a multiplier of their own first.
func effects(a *adminclient.Account, models []adminclient.CatalogModel) []effect {
	var own, others []effect
	for _, m := range models {
		line, price := firstPrice(&m.Price)
		if price == nil {
			continue
		}

		e := effect{
			Model:      m.ID,
			Line:       line,
			List:       *price,
			Multiplier: a.PriceMultiplier,
		}
		if multiplier, ok := a.ModelMultipliers[m.ID]; ok {
			e.Multiplier, e.Own = multiplier, true
		}

		e.Charged = view.Mul(e.List, e.Multiplier)
		if e.Own {
			own = append(own, e)
		} else {
			others = append(others, e)
		}
	}

	all := slices.Concat(own, others)
	return all[:min(len(all), max(3, len(own)))]
}

// firstPrice returns the most telling price of a model.
func firstPrice(p *adminclient.CatalogPrice) (line string, price *string) {
	switch {
	case p.Output != nil:
		return "output, per 1M tokens", p.Output
	case p.Input != nil:
		return "input, per 1M tokens", p.Input
	case len(p.Images) > 0:
		return "image", &p.Images[0].Price
	case len(p.Seconds) > 0:
		return "second", &p.Seconds[0].Price
	}
	return "", nil
}

type keysView struct {
	*head
	List  *adminclient.KeyList
	Pages kit.Pages
}

func accountKeys(r *kit.Request) (*kit.Page, error) {
	h, err := account(r, "keys")
	if err != nil {
		return nil, err
	}
	answer, err := r.API.ListKeys(r.Context(), h.ID, &adminclient.ListKeysParams{Cursor: kit.Cursor(r), Limit: new(kit.PageSize)})
	if err != nil {
		return nil, err
	}
	return h.page("account_keys", "Keys", "gwctl keys list "+h.ID, &keysView{h, answer.Value, kit.PagesOf(r, answer.Value.NextCursor)}), nil
}

type creditsView struct {
	*head
	List  *adminclient.CreditList
	Pages kit.Pages
	// Uncovered reports that there are charges which no credit has covered.
	Uncovered bool
}

// accountCredits shows what became of the money that was given to the account.
func accountCredits(r *kit.Request) (*kit.Page, error) {
	h, err := account(r, "credits")
	if err != nil {
		return nil, err
	}
	answer, err := r.API.ListCredits(r.Context(), h.ID, &adminclient.ListCreditsParams{Cursor: kit.Cursor(r), Limit: new(kit.PageSize)})
	if err != nil {
		return nil, err
	}
	data := &creditsView{h, answer.Value, kit.PagesOf(r, answer.Value.NextCursor), answer.Value.Uncovered != "0.00"}
	return h.page("account_credits", "Credits", "gwctl credits list "+h.ID, data), nil
}

type ledgerView struct {
	*head
	List  *adminclient.TransactionList
	Pages kit.Pages
	// Balances are the balances after each transaction; empty if they are not known.
	Balances []string
}

// accountLedger shows the ledger. The running balance is computed back from the present one; only the first page has it,
// and only if the balance stayed the same while the page was read.
func accountLedger(r *kit.Request) (*kit.Page, error) {
	h, err := account(r, "ledger")
	if err != nil {
		return nil, err
	}

	answer, err := r.API.ListLedger(r.Context(), h.ID, &adminclient.ListLedgerParams{Cursor: kit.Cursor(r), Limit: new(kit.PageSize)})
	if err != nil {
		return nil, err
	}

	data := &ledgerView{head: h, List: answer.Value, Pages: kit.PagesOf(r, answer.Value.NextCursor)}
	if data.Pages.First == "" {
		again, err := r.API.GetBalance(r.Context(), h.ID)
		if err != nil {
			return nil, err
		}
		if again.Value.Balance == h.Balance.Balance {
			data.Balances = running(h.Balance.Balance, answer.Value.Data)
		}
	}

	return h.page("account_ledger", "Ledger", "gwctl ledger list "+h.ID, data), nil
}

// running returns the balances after transactions, newest first.
func running(balance string, all []adminclient.Transaction) []string {
	balances := make([]string, len(all))
	for i := range all {
		balances[i] = balance
		balance = view.Sub(balance, all[i].Amount)
	}
	return balances
}

type changesView struct {
	*head
	List  *adminclient.AuditList
	Pages kit.Pages
}

func accountChanges(r *kit.Request) (*kit.Page, error) {
	h, err := account(r, "changes")
	if err != nil {
		return nil, err
	}
	answer, err := r.API.ListAudit(
		r.Context(),
		&adminclient.ListAuditParams{Object: &h.ID, Cursor: kit.Cursor(r), Limit: new(kit.PageSize)},
	)
	if err != nil {
		return nil, err
	}
	list, err := kit.Exact(answer)
	if err != nil {
		return nil, err
	}
	return h.page(
		"account_changes",
		"Changes",
		kit.Command("audit list", "--object", h.ID),
		&changesView{h, list, kit.PagesOf(r, answer.Value.NextCursor)},
	), nil
}

type modelsView struct {
	*head
	Granted []string
	// Public are the models that every account may use.
	Public []string
}

func accountModels(r *kit.Request) (*kit.Page, error) {
	h, err := account(r, "models")
	if err != nil {
		return nil, err
	}

	grants, err := r.API.ListGrants(r.Context(), h.ID)
	if err != nil {
		return nil, err
	}

	models, err := r.API.ListModels(r.Context(), &adminclient.ListModelsParams{Limit: new(maxModels)})
	if err != nil {
		return nil, err
	}

	data := &modelsView{head: h, Granted: grants.Value.Models}
	for _, m := range models.Value.Data {
		if m.Public == nil || *m.Public {
			data.Public = append(data.Public, m.ID)
		}
	}

	return h.page("account_models", "Models", "gwctl grants list "+h.ID, data), nil
}

type alertsView struct {
	*head
	*adminclient.Alerts
}

func accountAlerts(r *kit.Request) (*kit.Page, error) {
	h, err := account(r, "alerts")
	if err != nil {
		return nil, err
	}
	answer, err := r.API.GetAlerts(r.Context(), h.ID)
	if err != nil {
		return nil, err
	}
	return h.page("account_alerts", "Alerts", "gwctl alerts get "+h.ID, &alertsView{h, answer.Value}), nil
}
