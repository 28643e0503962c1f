package console

import (
	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/view"
)

type accountsView struct {
	List *adminclient.AccountList
	Next string
}

// listAccounts shows accounts, oldest first.
func listAccounts(r *request) (*page, error) {
	answer, err := r.api.ListAccounts(r.ctx, &adminclient.ListAccountsParams{
		Cursor: optional(r.FormValue("cursor")), Limit: new(50), ExternalID: optional(r.FormValue("external_id")),
	})
	if err != nil {
		return nil, err
	}
	return &page{
		Template: "accounts", Title: "Accounts", Command: "gwctl accounts list",
		Data: &accountsView{answer.Value, nextPage(r, answer.Value.NextCursor)},
	}, nil
}

type accountView struct {
	*adminclient.Account
	Keys *adminclient.KeyList
	Bar  []view.Part
}

// showAccount shows an account with its money and its keys.
func showAccount(r *request) (*page, error) {
	id := r.PathValue("id")
	answer, err := r.api.GetAccount(r.ctx, id)
	if err != nil {
		return nil, err
	}
	keys, err := r.api.ListKeys(r.ctx, id, &adminclient.ListKeysParams{Limit: new(50)})
	if err != nil {
		return nil, err
	}
	a := answer.Value
	return &page{
		Template: "account", Title: a.Name, Command: "gwctl accounts get " + a.ID + "\ngwctl keys list --account-id " + a.ID,
		Crumbs: []link{{"Accounts", "/console/accounts"}},
		Data: &accountView{a, keys.Value, view.Bar(
			view.Part{Kind: "free", Name: "available", Text: a.Balance.Available}, view.Part{Kind: "held", Name: "held by requests", Text: a.Balance.Reserved})},
	}, nil
}
