// Package nowpages has the pages of the console about the present and about single requests.
package nowpages

import (
	"embed"

	"modelgateway/controlplane/internal/console/kit"
)

//go:embed template
var templates embed.FS

// Section returns the pages.
func Section() kit.Section {
	return kit.Section{
		Name: "Now", Templates: templates,
		Items: []kit.Item{
			{Link: kit.Link{Text: "Overview", URL: "/console/"}, Scope: kit.Read},
			{Link: kit.Link{Text: "Requests", URL: "/console/requests"}, Scope: kit.Read},
			{Link: kit.Link{Text: "Refusals", URL: "/console/refusals"}, Scope: kit.Read},
		},
		Routes: []kit.Route{
			{Pattern: "GET /console/{$}", Scope: kit.Read, Handle: overview},
			{Pattern: "GET /console/requests", Scope: kit.Read, Handle: listRequests},
			{Pattern: "GET /console/refusals", Scope: kit.Read, Handle: listRefusals},
			{Pattern: "GET /console/requests/export", Scope: kit.Read, Handle: exportRequests},
			{Pattern: "GET /console/requests/{id}", Scope: kit.Read, Handle: showRequest},
		},
	}
}
