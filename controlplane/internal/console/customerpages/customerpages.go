// Package customerpages has the pages of the console about accounts, projects, keys and usage.
package customerpages

import (
	"embed"
	"slices"

	"modelgateway/controlplane/internal/console/kit"
)

//go:embed template
var templates embed.FS

// Section returns the pages. apiURL is the address at which customers reach the gateway; empty if it is not known.
func Section(apiURL string) kit.Section {
	connect := newConnector(apiURL)
	return kit.Section{
		Name:      "Customers",
		Templates: templates,
		Items: []kit.Item{
			{Link: kit.Link{Text: "Accounts", URL: "/console/accounts"}, Scope: kit.Read},
			{Link: kit.Link{Text: "Usage", URL: "/console/usage"}, Scope: kit.Read},
			{Link: kit.Link{Text: "Connect", URL: "/console/connect"}, Scope: kit.Read},
		},
		Routes: slices.Concat(
			[]kit.Route{
				{Pattern: "GET /console/accounts", Scope: kit.Read, Handle: listAccounts},
				{Pattern: "GET /console/accounts/{id}", Scope: kit.Read, Handle: showAccount},
				{Pattern: "GET /console/accounts/{id}/keys", Scope: kit.Read, Handle: accountKeys},
				{Pattern: "GET /console/accounts/{id}/projects", Scope: kit.Read, Handle: accountProjects},
				{Pattern: "GET /console/accounts/{id}/limits", Scope: kit.Read, Handle: accountLimits},
				{Pattern: "GET /console/accounts/{id}/usage", Scope: kit.Read, Handle: accountUsage},
				{Pattern: "GET /console/accounts/{id}/credits", Scope: kit.Read, Handle: accountCredits},
				{Pattern: "GET /console/accounts/{id}/ledger", Scope: kit.Read, Handle: accountLedger},
				{Pattern: "GET /console/accounts/{id}/statement", Scope: kit.Read, Handle: accountStatement},
				{Pattern: "GET /console/accounts/{id}/alerts", Scope: kit.Read, Handle: accountAlerts},
				{Pattern: "GET /console/accounts/{id}/models", Scope: kit.Read, Handle: accountModels},
				{Pattern: "GET /console/accounts/{id}/money", Scope: kit.Observe, Handle: accountPools},
				{Pattern: "GET /console/accounts/{id}/changes", Scope: kit.Observe, Handle: accountChanges},
				{Pattern: "GET /console/keys/{id}", Scope: kit.Read, Handle: showKey},
				{Pattern: "GET /console/projects/{id}", Scope: kit.Read, Handle: showProject},
				{Pattern: "GET /console/limits/{id}", Scope: kit.Read, Handle: showLimit},
				{Pattern: "GET /console/usage", Scope: kit.Read, Handle: showUsage},
				{Pattern: "GET /console/connect", Scope: kit.Read, Handle: connect.show},
			},
			kit.FormRoutes("/console/accounts/new", kit.Cabinet, newAccount),
			kit.FormRoutes("/console/accounts/{id}/edit", kit.Cabinet, editAccount),
			kit.FormRoutes("/console/accounts/{id}/suspend", kit.Cabinet, suspend),
			kit.FormRoutes("/console/accounts/{id}/book", kit.Credits, book),
			kit.FormRoutes("/console/accounts/{id}/alerts/edit", kit.Cabinet, setAlerts),
			kit.FormRoutes("/console/accounts/{id}/models/grant", kit.Cabinet, grant),
			kit.FormRoutes("/console/accounts/{id}/models/withdraw", kit.Cabinet, withdraw),
			kit.FormRoutes("/console/accounts/{id}/keys/new", kit.Cabinet, issueKey),
			kit.FormRoutes("/console/accounts/{id}/keys/import", kit.Cabinet, importKeys),
			kit.FormRoutes("/console/accounts/{id}/projects/new", kit.Cabinet, newProject),
			kit.FormRoutes("/console/accounts/{id}/limits/new", kit.Cabinet, newLimit),
			kit.FormRoutes("/console/limits/{id}/edit", kit.Cabinet, editLimit),
			kit.FormRoutes("/console/limits/{id}/raise", kit.Cabinet, raiseLimit),
			kit.FormRoutes("/console/limits/{id}/lower", kit.Cabinet, lowerLimit),
			kit.FormRoutes("/console/limits/{id}/reset", kit.Cabinet, resetLimit),
			kit.FormRoutes("/console/limits/{id}/remove", kit.Cabinet, removeLimit),
			kit.FormRoutes("/console/projects/{id}/edit", kit.Cabinet, editProject),
			kit.FormRoutes("/console/projects/{id}/delete", kit.Cabinet, deleteProject),
			kit.FormRoutes("/console/keys/{id}/edit", kit.Cabinet, editKey),
			kit.FormRoutes("/console/keys/{id}/rotate", kit.Cabinet, rotateKey),
			kit.FormRoutes("/console/keys/{id}/revoke", kit.Cabinet, revokeKey),
			kit.FormRoutes("/console/keys/{id}/reveal", kit.KeysReveal, revealKey),
			kit.FormRoutes("/console/keys/{id}/try", kit.KeysReveal, connect.try),
		),
	}
}

// maxModels is the number of models that pages about an account know: the largest page of the API.
const maxModels = 500
