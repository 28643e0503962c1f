package catalogpages

import (
	"slices"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
	"modelgateway/controlplane/internal/console/view"
)

type credentialRow struct {
	Name, Kind string
	On         bool
	// Refused tells who refuses it and why; nil if no proxy reports that.
	Refused *adminclient.RefusedCredential
}

type providerRow struct {
	*adminclient.CatalogProvider
	State       view.Badge
	Credentials []credentialRow
	// Refused is the number of credentials that a proxy reports as refused.
	Refused int
}

type providersView struct {
	Rows  []providerRow
	Pages kit.Pages
	// Reports is set if the person may see what the proxies report.
	Reports bool
}

// refused returns the credentials that proxies report as refused, if the person may see them.
func refused(r *kit.Request) ([]adminclient.RefusedCredential, error) {
	if !r.May(kit.Observe) {
		return nil, nil
	}
	answer, err := r.API.ListProxies(r.Context())
	if err != nil {
		return nil, err
	}
	return answer.Value.RefusedCredentials, nil
}

func newProviderRow(p *adminclient.CatalogProvider, all *adminclient.MaintenanceList, reports []adminclient.RefusedCredential) providerRow {
	row := providerRow{CatalogProvider: p, State: stateOf(p.Enabled, all, adminclient.MaintenanceScopeProvider, p.ID)}
	for _, c := range p.Credentials {
		credential := credentialRow{Name: c.Name, Kind: kindWord(&c), On: isSet(c.Enabled)}
		for i := range reports {
			if reports[i].ProviderID == p.ID && reports[i].Credential == c.Name {
				credential.Refused = &reports[i]
				row.Refused++
			}
		}
		row.Credentials = append(row.Credentials, credential)
	}
	return row
}

// listProviders shows the providers with the state of their credentials.
func listProviders(r *kit.Request) (*kit.Page, error) {
	answer, err := r.API.ListProviders(r.Context(), &adminclient.ListProvidersParams{Cursor: kit.Cursor(r), Limit: new(kit.PageSize)})
	if err != nil {
		return nil, err
	}

	maintenance, err := r.API.ListMaintenance(r.Context())
	if err != nil {
		return nil, err
	}

	reports, err := refused(r)
	if err != nil {
		return nil, err
	}

	data := &providersView{Pages: kit.PagesOf(r, answer.Value.NextCursor), Reports: r.May(kit.Observe)}
	for i := range answer.Value.Data {
		data.Rows = append(data.Rows, newProviderRow(&answer.Value.Data[i], maintenance.Value, reports))
	}

	return &kit.Page{
		Template: "providers",
		Title:    "Providers",
		Command:  "gwctl providers list",
		Data:     data,
	}, nil
}

type providerRouteRow struct {
	Model string
	adminclient.CatalogRoute
	On bool
	// Calls are the addresses that are called.
	Calls []called
}

type providerView struct {
	providerRow
	Closed  *adminclient.Maintenance
	Routes  []providerRouteRow
	Reports bool
	// More is set if the catalog has more models than the page reads.
	More bool
	// Health is how the routes do; nil if the person may not see it.
	Health *kit.RouteTable
	// Doubts are the answers of the last hour whose usage is in doubt.
	Doubts []adminclient.UsageDoubt
	// LeftOut are the members that calls of the last hour left out, because the provider refuses them.
	LeftOut []adminclient.LeftOut
}

var providerCrumbs = []kit.Link{{Text: "Providers", URL: "/console/providers"}}

// showProvider shows a provider with its credentials, never their secrets, and the routes that use it.
func showProvider(r *kit.Request) (*kit.Page, error) {
	answer, err := r.API.GetProvider(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}

	p := answer.Value
	maintenance, err := r.API.ListMaintenance(r.Context())
	if err != nil {
		return nil, err
	}

	reports, err := refused(r)
	if err != nil {
		return nil, err
	}

	models, err := r.API.ListModels(r.Context(), &adminclient.ListModelsParams{Limit: new(maxObjects)})
	if err != nil {
		return nil, err
	}

	data := &providerView{
		providerRow: newProviderRow(p, maintenance.Value, reports),
		Closed:      maintenanceOf(maintenance.Value, adminclient.MaintenanceScopeProvider, p.ID),
		Reports:     r.May(kit.Observe),
		More:        models.Value.NextCursor != nil,
	}
	if data.Health, err = health(r, func(route *adminclient.RouteHealth) bool { return route.ProviderID == p.ID }); err != nil {
		return nil, err
	}

	if data.Health != nil {
		for _, d := range data.Health.UsageDoubts {
			if d.ProviderID == p.ID {
				data.Doubts = append(data.Doubts, d)
			}
		}
		for _, m := range data.Health.LeftOut {
			if m.ProviderID == p.ID {
				data.LeftOut = append(data.LeftOut, m)
			}
		}
	}

	for _, m := range models.Value.Data {
		for _, route := range m.Routes {
			if route.Provider == p.ID {
				data.Routes = append(data.Routes, providerRouteRow{m.ID, route, isSet(route.Enabled), calledBy(p, &route)})
			}
		}
	}

	return &kit.Page{
		Template: "provider",
		Title:    "Provider " + p.ID,
		Crumbs:   providerCrumbs,
		Data:     data,
		Command:  "gwctl providers get " + kit.Quote(p.ID) + "\ngwctl credentials list " + kit.Quote(p.ID),
	}, nil
}

func belowProvider(id string) []kit.Link {
	return append(slices.Clip(providerCrumbs), kit.Link{Text: id, URL: kit.Path("providers", id)})
}
