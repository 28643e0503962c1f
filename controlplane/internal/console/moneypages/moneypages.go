// Package moneypages has the pages of the console about the margin, the check of the books, the bills of providers and what could
// not be settled.
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
			{Link: kit.Link{Text: "Margin", URL: "/console/margin"}, Scope: kit.Operator},
			{Link: kit.Link{Text: "Money check", URL: "/console/money"}, Scope: kit.Observe},
			{Link: kit.Link{Text: "Provider bills", URL: "/console/bills"}, Scope: kit.Operator},
			{Link: kit.Link{Text: "Quarantine", URL: "/console/quarantine"}, Scope: kit.Observe},
		},
		Routes: slices.Concat(
			[]kit.Route{
				{Pattern: "GET /console/margin", Scope: kit.Operator, Handle: showMargin},
				{Pattern: "GET /console/margin/export", Scope: kit.Operator, Handle: exportMargin},
				{Pattern: "GET /console/money", Scope: kit.Observe, Handle: showChecks},
				{Pattern: "GET /console/money/checks/{id}", Scope: kit.Observe, Handle: showRun},
				{Pattern: "GET /console/money/export", Scope: kit.Read, Handle: exportLedger},
				{Pattern: "GET /console/bills", Scope: kit.Operator, Handle: listBills},
				{Pattern: "GET /console/bills/{id}", Scope: kit.Operator, Handle: showBill},
				{Pattern: "GET /console/bills/{id}/differences/{number}", Scope: kit.Operator, Handle: showDifference},
				{Pattern: "GET /console/quarantine", Scope: kit.Observe, Handle: listQuarantine},
				{Pattern: "GET /console/quarantine/{id}", Scope: kit.Observe, Handle: showQuarantined},
			},
			kit.FormRoutes("/console/money/start", kit.Operator, startCheck),
			kit.FormRoutes("/console/bills/import", kit.Operator, importBill),
			kit.FormRoutes("/console/bills/{id}/accept", kit.Operator, acceptBill),
			kit.FormRoutes("/console/bills/{id}/delete", kit.Operator, deleteBill),
			kit.FormRoutes("/console/quarantine/{id}/settle", kit.Operator, settle),
			kit.FormRoutes("/console/quarantine/{id}/dismiss", kit.Operator, dismiss),
		),
	}
}
