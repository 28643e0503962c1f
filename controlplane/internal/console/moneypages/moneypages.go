// Package moneypages has the pages of the console about the check of the books and what could not be settled.
package moneypages

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
		Name:      "Money",
		Templates: templates,
		Items: []kit.Item{
			{Link: kit.Link{Text: "Money check", URL: "/console/money"}, Scope: kit.Observe},
			{Link: kit.Link{Text: "Quarantine", URL: "/console/quarantine"}, Scope: kit.Observe},
		},
		Routes: slices.Concat(
			[]kit.Route{
				{Pattern: "GET /console/money", Scope: kit.Observe, Handle: showChecks},
				{Pattern: "GET /console/money/checks/{id}", Scope: kit.Observe, Handle: showRun},
				{Pattern: "GET /console/money/export", Scope: kit.Read, Handle: exportLedger},
				{Pattern: "GET /console/quarantine", Scope: kit.Observe, Handle: listQuarantine},
				{Pattern: "GET /console/quarantine/{id}", Scope: kit.Observe, Handle: showQuarantined},
			},
			kit.FormRoutes("/console/money/start", kit.Operator, startCheck),
			kit.FormRoutes("/console/quarantine/{id}/settle", kit.Operator, settle),
			kit.FormRoutes("/console/quarantine/{id}/dismiss", kit.Operator, dismiss),
		),
	}
}
