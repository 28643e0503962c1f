package customerpages

import (
	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
)

type accountsView struct {
	List       *adminclient.AccountList
	Pages      kit.Pages
	ExternalID string
}

// listAccounts shows accounts, oldest first.
func listAccounts(r *kit.Request) (*kit.Page, error) {
	external := r.Text("external_id")
	answer, err := r.API.ListAccounts(r.Context(), &adminclient.ListAccountsParams{
		Cursor: kit.Cursor(r), Limit: new(kit.PageSize), ExternalID: kit.Optional(external),
	})
	if err != nil {
		return nil, err
	}
	return &kit.Page{
		Template: "accounts", Title: "Accounts", Command: kit.Command("accounts list", "--external-id", external),
		Data: &accountsView{answer.Value, kit.PagesOf(r, answer.Value.NextCursor), external},
	}, nil
}
