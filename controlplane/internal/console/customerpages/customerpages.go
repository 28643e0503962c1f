// Package customerpages has the pages of the console about accounts, keys and usage.
package customerpages

import (
	"embed"
	"slices"

	"modelgateway/controlplane/internal/console/kit"
)

//go:embed template
var templates embed.FS

// Section returns the pages.
func Section() kit.Section {
	return kit.Section{
		Name: "Customers", Templates: templates,
		Items: []kit.Item{{Link: kit.Link{Text: "Accounts", URL: "/console/accounts"}, Scope: kit.Read}},
		Routes: slices.Concat(
			[]kit.Route{
				{Pattern: "GET /console/accounts", Scope: kit.Read, Handle: listAccounts},
				{Pattern: "GET /console/accounts/{id}", Scope: kit.Read, Handle: showAccount},
			},
			kit.FormRoutes("/console/accounts/new", kit.Cabinet, newAccount),
			kit.FormRoutes("/console/accounts/{id}/edit", kit.Cabinet, editAccount),
		),
	}
}
