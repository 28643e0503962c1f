// Package catalogpages has the pages of the console about models, prices, routes, providers and maintenance.
package catalogpages

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
		Name:      "Catalog",
		Templates: templates,
		Items: []kit.Item{
			{Link: kit.Link{Text: "Models", URL: "/console/models"}, Scope: kit.Read},
			{Link: kit.Link{Text: "Providers", URL: "/console/providers"}, Scope: kit.Read},
			{Link: kit.Link{Text: "Change the catalog", URL: "/console/catalog"}, Scope: kit.Operator},
			{Link: kit.Link{Text: "Maintenance", URL: "/console/maintenance"}, Scope: kit.Read},
		},
		Routes: slices.Concat(
			[]kit.Route{
				{Pattern: "GET /console/models", Scope: kit.Read, Handle: listModels},
				{Pattern: "GET /console/models/{id}", Scope: kit.Read, Handle: showModel},
				{Pattern: "GET /console/models/{id}/prices", Scope: kit.Read, Handle: goToPrices},
				{Pattern: "GET /console/providers", Scope: kit.Read, Handle: listProviders},
				{Pattern: "GET /console/providers/{id}", Scope: kit.Read, Handle: showProvider},
				{Pattern: "GET /console/catalog", Scope: kit.Operator, Handle: showEditor},
				{Pattern: "POST /console/catalog", Scope: kit.Operator, Handle: changeCatalog},
				{Pattern: "GET /console/catalog/file", Scope: kit.Read, Handle: downloadCatalog},
				{Pattern: "GET /console/maintenance", Scope: kit.Read, Handle: listMaintenance},
			},
			// These addresses are not below /console/models/ and /console/providers/, where any name may be that of an object.
			kit.FormRoutes("/console/catalog/price-list", kit.Operator, importPrices),
			kit.FormRoutes("/console/catalog/new-model", kit.Operator, createModel),
			kit.FormRoutes("/console/catalog/new-provider", kit.Operator, createProvider),
			kit.FormRoutes("/console/models/{id}/delete", kit.Operator, deleteModel),
			kit.FormRoutes("/console/models/{id}/new-route", kit.Operator, createRoute),
			kit.FormRoutes("/console/models/{id}/routes/{route}/delete", kit.Operator, deleteRoute),
			kit.FormRoutes("/console/providers/{id}/delete", kit.Operator, deleteProvider),
			kit.FormRoutes("/console/providers/{id}/credentials/{credential}/delete", kit.Operator, deleteCredential),
			kit.FormRoutes("/console/models/{id}/edit", kit.Operator, editModel),
			kit.FormRoutes("/console/models/{id}/price", kit.Operator, changePrice),
			kit.FormRoutes("/console/models/{id}/prices/{price}/cancel", kit.Operator, cancelPrice),
			kit.FormRoutes("/console/models/{id}/routes/{route}/edit", kit.Operator, editRoute),
			kit.FormRoutes("/console/providers/{id}/edit", kit.Operator, editProvider),
			kit.FormRoutes("/console/providers/{id}/check", kit.Operator, checkProvider),
			kit.FormRoutes("/console/providers/{id}/credentials/new", kit.Operator, addCredential),
			kit.FormRoutes("/console/providers/{id}/credentials/{credential}/replace", kit.Operator, replaceCredential),
			kit.FormRoutes("/console/providers/{id}/credentials/{credential}/enable", kit.Operator, enableCredential),
			kit.FormRoutes("/console/maintenance/close", kit.Operator, closeScope),
			kit.FormRoutes("/console/maintenance/open", kit.Operator, openScope),
		),
	}
}

// maxObjects is the number of objects that a page shows: the largest page of the API.
const maxObjects = 500

// isSet reports whether an optional member of the API that is true by default is true.
func isSet(value *bool) bool { return value == nil || *value }
