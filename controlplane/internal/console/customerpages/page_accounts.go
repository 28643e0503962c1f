package customerpages

import (
	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
	"modelgateway/controlplane/internal/console/view"
)

type accountsView struct {
	List  *adminclient.AccountList
	Pages kit.Pages
}

// listAccounts shows accounts, oldest first.
func listAccounts(r *kit.Request) (*kit.Page, error) {
	answer, err := r.API.ListAccounts(r.Context(), &adminclient.ListAccountsParams{
		Cursor: kit.Cursor(r), Limit: new(kit.PageSize), ExternalID: kit.Optional(r.FormValue("external_id")),
	})
	if err != nil {
		return nil, err
	}
	return &kit.Page{
		Template: "accounts", Title: "Accounts", Command: "gwctl accounts list",
		Data: &accountsView{answer.Value, kit.PagesOf(r, answer.Value.NextCursor)},
	}, nil
}

type accountView struct {
	*adminclient.Account
	Keys *adminclient.KeyList
	Bar  []view.Part
}

// showAccount shows an account with its money and its keys.
func showAccount(r *kit.Request) (*kit.Page, error) {
	id := r.PathValue("id")
	answer, err := r.API.GetAccount(r.Context(), id)
	if err != nil {
		return nil, err
	}
	keys, err := r.API.ListKeys(r.Context(), id, &adminclient.ListKeysParams{Limit: new(kit.PageSize)})
	if err != nil {
		return nil, err
	}
	a := answer.Value
	return &kit.Page{
		Template: "account", Title: a.Name, Command: "gwctl accounts get " + a.ID + "\ngwctl keys list --account-id " + a.ID,
		Crumbs: crumbs,
		Data: &accountView{a, keys.Value, view.Bar(
			view.Part{Kind: "free", Name: "available", Text: a.Balance.Available}, view.Part{Kind: "held", Name: "held by requests", Text: a.Balance.Reserved})},
	}, nil
}
