package customerpages

import (
	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
)

type accountsView struct {
	List                *adminclient.AccountList
	Pages               kit.Pages
	Query, Status, Sort string
	Sorts               []kit.Option
}

// sorts are the orders of the list of accounts.
var sorts = []kit.Option{
	{Value: "created", Text: "Oldest first"},
	{Value: "balance", Text: "Lowest balance first"},
	{Value: "cost_7d", Text: "Highest charges first"},
	{Value: "hours_left", Text: "Shortest time left first"},
}

// listAccounts shows accounts with what they have and spend.
func listAccounts(r *kit.Request) (*kit.Page, error) {
	v := &accountsView{
		Query:  r.Text("query"),
		Status: r.Text("status"),
		Sort:   r.Text("sort"),
		Sorts:  sorts,
	}
	params := &adminclient.ListAccountsParams{Cursor: kit.Cursor(r), Limit: new(kit.PageSize), Query: kit.Optional(v.Query)}
	if v.Status != "" {
		params.Status = new(adminclient.AccountStatus(v.Status))
	}
	if v.Sort != "" {
		params.Sort = new(adminclient.AccountSort(v.Sort))
	}

	answer, err := r.API.ListAccounts(r.Context(), params)
	if err != nil {
		return nil, err
	}

	v.List, v.Pages = answer.Value, kit.PagesOf(r, answer.Value.NextCursor)
	return &kit.Page{
		Template: "accounts",
		Title:    "Accounts",
		Data:     v,
		Command:  kit.Command("accounts list", "--query", v.Query, "--status", v.Status, "--sort", v.Sort),
	}, nil
}
