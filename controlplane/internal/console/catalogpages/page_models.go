package catalogpages

import (
	"maps"
	"slices"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
	"modelgateway/controlplane/internal/console/priceform"
	"modelgateway/controlplane/internal/console/view"
)

type modelRow struct {
	*adminclient.CatalogModel
	State    view.Badge
	Everyone bool
	// Closed is set while it is under maintenance.
	Closed bool
	// Price has the two most important lines.
	Price []priceform.Line
	// Others is the number of further lines.
	Others int
	// Providers are those of its routes.
	Providers []string
	// Off is the number of routes that are disabled.
	Off int
}

type modelsView struct {
	Rows     []modelRow
	Pages    kit.Pages
	Currency string
}

// listModels shows the models with the prices in force.
func listModels(r *kit.Request) (*kit.Page, error) {
	answer, err := r.API.ListModels(r.Context(), &adminclient.ListModelsParams{Cursor: kit.Cursor(r), Limit: new(kit.PageSize)})
	if err != nil {
		return nil, err
	}

	maintenance, err := r.API.ListMaintenance(r.Context())
	if err != nil {
		return nil, err
	}

	settings, err := r.API.GetSettings(r.Context())
	if err != nil {
		return nil, err
	}

	data := &modelsView{Pages: kit.PagesOf(r, answer.Value.NextCursor), Currency: settings.Value.Currency}
	for i := range answer.Value.Data {
		m := &answer.Value.Data[i]
		row := modelRow{
			CatalogModel: m,
			Everyone:     isSet(m.Public),
			State:        stateOf(m.Enabled, maintenance.Value, adminclient.MaintenanceScopeModel, m.ID),
			Closed:       maintenanceOf(maintenance.Value, adminclient.MaintenanceScopeModel, m.ID) != nil,
		}
		row.Price, row.Others = mainLines(priceform.Lines(&m.Price))
		providers := map[string]bool{}
		for _, route := range m.Routes {
			providers[route.Provider] = true
			if !isSet(route.Enabled) {
				row.Off++
			}
		}
		row.Providers = slices.Sorted(maps.Keys(providers))
		data.Rows = append(data.Rows, row)
	}

	return &kit.Page{
		Template: "models",
		Title:    "Models",
		Command:  "gwctl models list",
		Data:     data,
	}, nil
}

// stateOf returns whether a model or provider can be used.
func stateOf(enabled *bool, all *adminclient.MaintenanceList, scope adminclient.MaintenanceScope, id string) view.Badge {
	switch {
	case !isSet(enabled):
		return view.Badge{Kind: "idle", Word: "disabled"}
	case maintenanceOf(all, scope, id) != nil:
		return view.Badge{Kind: "warn", Word: "under maintenance"}
	default:
		return view.Badge{Kind: "good", Word: "enabled"}
	}
}

// maintenanceOf returns the active maintenance of an object; nil if there is none.
func maintenanceOf(all *adminclient.MaintenanceList, scope adminclient.MaintenanceScope, id string) *adminclient.Maintenance {
	for i := range all.Data {
		m := &all.Data[i]
		if m.Active && m.Scope == scope && (m.ID == nil && id == "" || m.ID != nil && *m.ID == id) {
			return m
		}
	}
	return nil
}

// routeRow is a route in the order in which requests try it.
type routeRow struct {
	adminclient.CatalogRoute
	On bool
	// Order is the priority; Share is the weight, which is 1 if none is set.
	Order, Share int
	// Closed is the maintenance of its provider.
	Closed *adminclient.Maintenance
}

// paramRow is a parameter that differs from the policy of the format.
type paramRow struct {
	// Where is "model" or the id of the route.
	Where, Format, Name string
	adminclient.CatalogParam
	// Set is set if there is a value, which may be false or null.
	Set bool
	// Offered tells how tools are handled that are not allowed, but merely offered to the model; "" for other parameters.
	Offered string
}

// versionRow is a past, present or scheduled price.
type versionRow struct {
	*adminclient.PriceVersion
	Badge view.Badge
	Lines []priceform.Line
	// Changes tell how it differs from the version before it, if that is known.
	Changes []string
}

// defaultReserve is the number of output tokens that the gateway reserves for a model without a limit.
const defaultReserve = 4096

type modelView struct {
	*adminclient.CatalogModel
	State    view.Badge
	Everyone bool
	Currency string
	Closed   *adminclient.Maintenance
	Price    []priceform.Line
	Versions []versionRow
	// Line is nil on further pages of the list, and if there is one price.
	Line   *timeLine
	Routes []routeRow
	Params []paramRow
	Pages  kit.Pages
	// DefaultReserve is the output that is reserved while the model has no limit.
	DefaultReserve int64
	// Health is how the routes do; nil if the person may not see it.
	Health *kit.RouteTable
}

// showModel shows a model with its prices and routes.
func showModel(r *kit.Request) (*kit.Page, error) {
	answer, err := r.API.GetModel(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}

	m := answer.Value
	prices, err := r.API.ListPrices(r.Context(), m.ID, &adminclient.ListPricesParams{Cursor: kit.Cursor(r), Limit: new(kit.PageSize)})
	if err != nil {
		return nil, err
	}

	maintenance, err := r.API.ListMaintenance(r.Context())
	if err != nil {
		return nil, err
	}

	settings, err := r.API.GetSettings(r.Context())
	if err != nil {
		return nil, err
	}

	data := &modelView{
		CatalogModel: m,
		State:        stateOf(m.Enabled, maintenance.Value, adminclient.MaintenanceScopeModel, m.ID),
		Everyone:     isSet(m.Public),
		Currency:     settings.Value.Currency,
		Closed:       maintenanceOf(maintenance.Value, adminclient.MaintenanceScopeModel, m.ID),
		Price:        priceform.Lines(&m.Price),
		Versions:     versions(prices.Value.Data),
		Routes:       routes(m, maintenance.Value),
		Pages:        kit.PagesOf(r, prices.Value.NextCursor),

		DefaultReserve: defaultReserve,
	}
	if data.Health, err = health(r, func(route *adminclient.RouteHealth) bool { return route.Model == m.ID }); err != nil {
		return nil, err
	}
	if kit.Cursor(r) == nil {
		data.Line = newTimeLine(data.Versions)
	}

	data.Params = params("model", m.Params)
	for _, route := range m.Routes {
		data.Params = append(data.Params, params(name(route.ID), route.Params)...)
	}

	return &kit.Page{
		Template: "model",
		Title:    "Model " + m.ID,
		Crumbs:   modelCrumbs,
		Data:     data,
		Command:  "gwctl models get " + kit.Quote(m.ID) + "\ngwctl prices list " + kit.Quote(m.ID),
	}, nil
}

// health returns how those routes do for which shown returns true; nil if the person may not see it.
func health(r *kit.Request, shown func(*adminclient.RouteHealth) bool) (*kit.RouteTable, error) {
	if !r.May(kit.Observe) {
		return nil, nil //nolint:nilnil // the page is shown without it
	}
	return kit.ReadRoutes(r, shown)
}

// goToPrices leads to the prices of a model, to which receipts link.
func goToPrices(r *kit.Request) (*kit.Page, error) {
	return kit.Go(kit.Path("models", r.PathValue("id"))+"#prices", nil)
}

var modelCrumbs = []kit.Link{{Text: "Models", URL: "/console/models"}}

func name(id *string) string {
	if id == nil {
		return ""
	}
	return *id
}

// versions returns prices, newest first, as the API lists them or the other way around.
func versions(all []adminclient.PriceVersion) []versionRow {
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b adminclient.PriceVersion) int { return b.EffectiveFrom.Compare(a.EffectiveFrom) })
	rows := make([]versionRow, len(sorted))
	for i := range sorted {
		rows[i] = versionRow{PriceVersion: &sorted[i], Badge: priceBadge(sorted[i].Status), Lines: priceform.Lines(&sorted[i].Price)}
		if i+1 < len(sorted) {
			rows[i].Changes = priceform.Changes(&sorted[i+1].Price, &sorted[i].Price)
		}
	}
	return rows
}

func routes(m *adminclient.CatalogModel, maintenance *adminclient.MaintenanceList) []routeRow {
	rows := make([]routeRow, len(m.Routes))
	for i, route := range m.Routes {
		rows[i] = routeRow{
			CatalogRoute: route,
			On:           isSet(route.Enabled),
			Share:        1,
			Closed:       maintenanceOf(maintenance, adminclient.MaintenanceScopeProvider, route.Provider),
		}
		if route.Priority != nil {
			rows[i].Order = *route.Priority
		}
		if route.Weight != nil && *route.Weight > 0 {
			rows[i].Share = *route.Weight
		}
	}

	slices.SortStableFunc(rows, func(a, b routeRow) int { return a.Order - b.Order })
	return rows
}

func params(where string, all *adminclient.CatalogParams) []paramRow {
	if all == nil {
		return nil
	}

	var rows []paramRow
	for _, format := range slices.Sorted(maps.Keys(*all)) {
		for _, param := range slices.Sorted(maps.Keys((*all)[format])) {
			p := (*all)[format][param]
			row := paramRow{where, format, param, p, p.Value != nil || p.Policy == adminclient.CatalogParamPolicyForce, ""}
			if p.Otherwise != nil {
				row.Offered = map[adminclient.CatalogParamOtherwise]string{
					adminclient.CatalogParamOtherwiseDrop: "dropped", adminclient.CatalogParamOtherwiseReject: "refused",
				}[*p.Otherwise]
			}
			rows = append(rows, row)
		}
	}

	return rows
}
