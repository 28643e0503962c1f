// Package systempages has the pages of the console about the system itself: proxies, checks, access, events and secrets.
package systempages

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
		Name:      "System",
		Templates: templates,
		Items: []kit.Item{
			{Link: kit.Link{Text: "Fleet", URL: "/console/proxies"}, Scope: kit.Observe},
			{Link: kit.Link{Text: "Diagnosis", URL: "/console/diagnosis"}, Scope: kit.Observe},
			{Link: kit.Link{Text: "Video jobs", URL: "/console/video-jobs"}, Scope: kit.Read},
			{Link: kit.Link{Text: "Webhooks", URL: "/console/webhooks"}, Scope: kit.Read},
			{Link: kit.Link{Text: "Events", URL: "/console/events"}, Scope: kit.Read},
			{Link: kit.Link{Text: "Audit", URL: "/console/audit"}, Scope: kit.Observe},
			{Link: kit.Link{Text: "Access", URL: "/console/access"}, Scope: kit.Observe},
			{Link: kit.Link{Text: "Secrets", URL: "/console/secrets"}, Scope: kit.Observe},
			{Link: kit.Link{Text: "Archive", URL: "/console/archive"}, Scope: kit.Observe},
			{Link: kit.Link{Text: "Settings", URL: "/console/settings"}, Scope: kit.Read},
		},
		Routes: slices.Concat(
			[]kit.Route{
				{Pattern: "GET /console/proxies", Scope: kit.Observe, Handle: listProxies},
				{Pattern: "GET /console/proxies/{session}", Scope: kit.Observe, Handle: showProxy},
				{Pattern: "GET /console/diagnosis", Scope: kit.Observe, Handle: showDiagnosis},
				{Pattern: "GET /console/video-jobs", Scope: kit.Read, Handle: listVideoJobs},
				{Pattern: "GET /console/video-jobs/{id}", Scope: kit.Read, Handle: showVideoJob},
				{Pattern: "GET /console/events", Scope: kit.Read, Handle: listEvents},
				{Pattern: "GET /console/audit", Scope: kit.Observe, Handle: listAudit},
				{Pattern: "GET /console/access", Scope: kit.Observe, Handle: listTokens},
				{Pattern: "GET /console/secrets", Scope: kit.Observe, Handle: showSecrets},
				{Pattern: "GET /console/archive", Scope: kit.Observe, Handle: listMonths},
				{Pattern: "GET /console/settings", Scope: kit.Read, Handle: showSettings},
			},
			kit.FormRoutes("/console/access/new", kit.Operator, issueToken),
			kit.FormRoutes("/console/access/{id}/revoke", kit.Operator, revokeToken),
			kit.FormRoutes("/console/access/sessions/{id}/end", kit.Operator, endSession),
			kit.FormRoutes("/console/secrets/master-key/rotate", kit.Operator, rotateMasterKey),
			kit.FormRoutes("/console/secrets/pepper/rotate", kit.Operator, rotatePepper),
			kit.FormRoutes("/console/archive/{month}/exported", kit.Operator, markExported),
			kit.FormRoutes("/console/settings/edit", kit.Operator, editSettings),
			webhookRoutes(),
		),
	}
}
