// Package nowpages has the pages of the console about the present and about single requests.
package nowpages

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
		Name:      "Now",
		Templates: templates,
		Items: []kit.Item{
			{Link: kit.Link{Text: "Overview", URL: "/console/"}, Scope: kit.Read},
			{Link: kit.Link{Text: "Live", URL: "/console/live"}, Scope: kit.Observe},
			{Link: kit.Link{Text: "Requests", URL: "/console/requests"}, Scope: kit.Read},
			{Link: kit.Link{Text: "Refusals", URL: "/console/refusals"}, Scope: kit.Read},
			{Link: kit.Link{Text: "Explain", URL: "/console/explain"}, Scope: kit.Observe},
			{Link: kit.Link{Text: "Routes", URL: "/console/routes"}, Scope: kit.Observe},
		},
		Routes: slices.Concat([]kit.Route{
			{Pattern: "GET /console/{$}", Scope: kit.Read, Handle: (&overviewPage{}).show, Live: true},
			{Pattern: "GET /console/requests", Scope: kit.Read, Handle: listRequests},
			{Pattern: "GET /console/refusals", Scope: kit.Read, Handle: listRefusals},
			{Pattern: "GET /console/requests/export", Scope: kit.Read, Handle: exportRequests},
			{Pattern: "GET /console/requests/{id}", Scope: kit.Read, Handle: showRequest},
			{Pattern: "GET /console/explain", Scope: kit.Observe, Handle: explainRequest},
			{Pattern: "GET /console/live", Scope: kit.Observe, Handle: showLive, Live: true},
			{Pattern: "GET /console/live/stream", Scope: kit.Observe, Handle: streamLive, Live: true},
			{Pattern: "GET /console/routes", Scope: kit.Observe, Handle: showRoutes, Live: true},
		}, kit.FormRoutes("/console/routes/{id}/reset", kit.Operator, resetRoute)),
	}
}
