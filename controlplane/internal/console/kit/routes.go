package kit

import (
	"cmp"
	"slices"
	"strconv"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/view"
)

// RouteTable is how routes do at each proxy, for the part "routes".
type RouteTable struct {
	*adminclient.RoutesHealth
	// Proxies are the names of the proxies in the order of the cells of a row.
	Proxies []string
	Rows    []RouteRow
	// Unheard are the proxies that are silent.
	Unheard []adminclient.TrafficProxy
	// MayReset is set if the person may reset a route.
	MayReset bool
}

// RouteRow is how a route does.
type RouteRow struct {
	*adminclient.RouteHealth
	Cells []BreakerCell
	// Bad is set if the breaker is not closed at a proxy.
	Bad bool
	// Dead is set if the provider has no credential that can be used, so that no call can be made, whatever the breaker is.
	Dead bool
	// Share is the bar of the calls of the last five minutes; nil if none is known or made.
	Share []view.Part
}

// BreakerCell is the circuit breaker of a route at a proxy.
type BreakerCell struct {
	Proxy string
	Badge view.Badge
	// Breaker is nil if the route has not failed at the proxy.
	*adminclient.Breaker
}

// ReadRoutes reads how those routes do for which shown returns true. It needs the scope observe. Routes that a proxy does not
// call come first.
func ReadRoutes(r *Request, shown func(*adminclient.RouteHealth) bool) (*RouteTable, error) {
	answer, err := r.API.GetRoutesHealth(r.Context())
	if err != nil {
		return nil, err
	}

	now, err := r.API.GetTraffic(r.Context())
	if err != nil {
		return nil, err
	}

	maintenance, dead := &adminclient.MaintenanceList{}, map[string]bool{}
	if answer.Value.RoutesReadAt == nil {
		if dead, err = withoutCredential(r); err != nil {
			return nil, err
		}
		read, err := r.API.ListMaintenance(r.Context())
		if err != nil {
			return nil, err
		}
		maintenance = read.Value
	}

	table := &RouteTable{RoutesHealth: answer.Value, MayReset: r.May(Operator)}
	silent := map[string]bool{}
	for _, p := range now.Value.Proxies {
		table.Proxies = append(table.Proxies, p.Name)
		silent[p.Name] = p.Silent
		if p.Silent {
			table.Unheard = append(table.Unheard, p)
		}
	}

	for _, route := range answer.Value.Data {
		for _, b := range route.Breakers {
			if !slices.Contains(table.Proxies, b.Proxy) {
				table.Proxies = append(table.Proxies, b.Proxy)
				silent[b.Proxy] = true
			}
		}
	}

	slices.Sort(table.Proxies)
	for i := range answer.Value.Data {
		if route := &answer.Value.Data[i]; shown(route) {
			table.Rows = append(table.Rows, newRouteRow(route, table.Proxies, silent, conditions{
				closed: closed(maintenance, route), dead: dead[route.ProviderID],
			}))
		}
	}

	slices.SortStableFunc(table.Rows, func(a, b RouteRow) int {
		order := map[bool]int{true: 0, false: 1}
		return cmp.Compare(order[a.Bad || a.Dead], order[b.Bad || b.Dead])
	})

	return table, nil
}

// withoutCredential returns the providers to which no request can be sent, because they have no credential that can be used.
func withoutCredential(r *Request) (map[string]bool, error) {
	answer, err := r.API.GetDiagnosis(r.Context(), &adminclient.GetDiagnosisParams{Ledger: new(false)})
	if err != nil {
		return nil, err
	}
	dead := map[string]bool{}
	for _, f := range answer.Value.Findings {
		if f.Check == "usable_credential" && f.Status != adminclient.FindingStatusOK && f.Subject != nil {
			dead[*f.Subject] = true
		}
	}
	return dead, nil
}

// conditions are what keeps a route from being called beside its breaker.
type conditions struct{ closed, dead bool }

// closed reports whether a route is closed for maintenance.
func closed(all *adminclient.MaintenanceList, route *adminclient.RouteHealth) bool {
	return slices.ContainsFunc(all.Data, func(m adminclient.Maintenance) bool {
		switch {
		case !m.Active:
			return false
		case m.ID == nil:
			return true
		case m.Scope == adminclient.MaintenanceScopeProvider:
			return *m.ID == route.ProviderID
		default:
			return *m.ID == route.Model
		}
	})
}

func newRouteRow(route *adminclient.RouteHealth, proxies []string, silent map[string]bool, is conditions) RouteRow {
	row := RouteRow{RouteHealth: route, Dead: is.dead && route.Enabled}
	for _, proxy := range proxies {
		// Of a route, "closed" would mean the opposite to who knows that word from maintenance.
		ready := view.State("ready")
		cell := BreakerCell{Proxy: proxy, Badge: ready}
		if at := slices.IndexFunc(route.Breakers, func(b adminclient.Breaker) bool { return b.Proxy == proxy }); at >= 0 {
			cell.Breaker = &route.Breakers[at]
			cell.Badge = view.State(string(cell.State))
			if cell.State == adminclient.BreakerStateClosed {
				cell.Badge = ready
				if cell.AsideUntil != nil {
					cell.Badge = view.Badge{Kind: "warn", Word: "set aside"}
				}
			}
		}

		row.Bad = row.Bad || cell.Badge.Kind != "good"
		switch {
		case row.Dead:
			cell.Badge = view.Badge{Kind: "idle", Word: "not called"}
		case silent[proxy]:
			cell.Badge = view.Badge{Kind: "idle", Word: "not known"}
		case !route.Enabled:
			cell.Badge = view.State("disabled")
		case is.closed:
			cell.Badge = view.Badge{Kind: "warn", Word: "in maintenance"}
		}

		row.Cells = append(row.Cells, cell)
	}

	if c := route.Calls; c != nil && c.Last5Minutes.Attempts > 0 {
		row.Share = view.Bar(
			view.Part{Kind: "good", Text: strconv.FormatInt(c.Last5Minutes.Attempts-c.Last5Minutes.Failures, 10)},
			view.Part{Kind: "bad", Text: strconv.FormatInt(c.Last5Minutes.Failures, 10)},
		)
	}

	return row
}
