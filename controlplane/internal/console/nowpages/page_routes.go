package nowpages

import (
	"slices"
	"strconv"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
	"modelgateway/controlplane/internal/console/view"
)

// breakerCell is the breaker of a route at a proxy.
type breakerCell struct {
	Proxy string
	Badge view.Badge
	// Breaker is nil if the route has not failed at the proxy.
	*adminclient.Breaker
}

type routeHealthRow struct {
	*adminclient.RouteHealth
	Cells []breakerCell
	// Bad is set if a proxy does not call the route.
	Bad bool
	// Share is the bar of the calls of the last five minutes; nil if none is known or made.
	Share []view.Part
}

type routesView struct {
	*adminclient.RoutesHealth
	Proxies []string
	Rows    []routeHealthRow
	// Unheard are the proxies that are silent.
	Unheard []adminclient.TrafficProxy
}

// showRoutes shows the circuit breaker of each route at each proxy.
func showRoutes(r *kit.Request) (*kit.Page, error) {
	answer, err := r.API.GetRoutesHealth(r.Context())
	if err != nil {
		return nil, err
	}
	now, err := r.API.GetTraffic(r.Context())
	if err != nil {
		return nil, err
	}
	maintenance, err := r.API.ListMaintenance(r.Context())
	if err != nil {
		return nil, err
	}
	data := &routesView{RoutesHealth: answer.Value}
	silent := map[string]bool{}
	for _, p := range now.Value.Proxies {
		data.Proxies = append(data.Proxies, p.Name)
		silent[p.Name] = p.Silent
		if p.Silent {
			data.Unheard = append(data.Unheard, p)
		}
	}
	for _, route := range answer.Value.Data {
		for _, b := range route.Breakers {
			if !slices.Contains(data.Proxies, b.Proxy) {
				data.Proxies = append(data.Proxies, b.Proxy)
				silent[b.Proxy] = true
			}
		}
	}
	slices.Sort(data.Proxies)
	closed := closedFor(maintenance.Value)
	for i := range answer.Value.Data {
		data.Rows = append(data.Rows, newRouteHealthRow(&answer.Value.Data[i], data.Proxies, silent, closed))
	}
	slices.SortStableFunc(data.Rows, func(a, b routeHealthRow) int {
		switch {
		case a.Bad == b.Bad:
			return 0
		case a.Bad:
			return -1
		default:
			return 1
		}
	})
	return &kit.Page{Template: "routes", Title: "Routes", Command: "gwctl routes health", Data: data}, nil
}

// closedFor returns a function that reports whether a route is closed for maintenance.
func closedFor(all *adminclient.MaintenanceList) func(*adminclient.RouteHealth) bool {
	return func(route *adminclient.RouteHealth) bool {
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
}

func newRouteHealthRow(route *adminclient.RouteHealth, proxies []string, silent map[string]bool, closed func(*adminclient.RouteHealth) bool) routeHealthRow {
	row := routeHealthRow{RouteHealth: route}
	for _, proxy := range proxies {
		cell := breakerCell{Proxy: proxy, Badge: view.Badge{Kind: "good", Word: "closed"}}
		if at := slices.IndexFunc(route.Breakers, func(b adminclient.Breaker) bool { return b.Proxy == proxy }); at >= 0 {
			cell.Breaker = &route.Breakers[at]
			cell.Badge = view.State(string(cell.State))
			if cell.State == adminclient.BreakerStateClosed && cell.AsideUntil != nil {
				cell.Badge = view.Badge{Kind: "warn", Word: "set aside"}
			}
		}
		row.Bad = row.Bad || cell.Badge.Kind != "good"
		switch {
		case silent[proxy]:
			cell.Badge = view.Badge{Kind: "idle", Word: "not known"}
		case !route.Enabled:
			cell.Badge = view.Badge{Kind: "idle", Word: "disabled"}
		case closed(route):
			cell.Badge = view.Badge{Kind: "warn", Word: "in maintenance"}
		}
		row.Cells = append(row.Cells, cell)
	}
	if c := route.Calls; c != nil && c.Last5Minutes.Attempts > 0 {
		row.Share = view.Bar(
			view.Part{Kind: "good", Text: itoa(c.Last5Minutes.Attempts - c.Last5Minutes.Failures)},
			view.Part{Kind: "bad", Text: itoa(c.Last5Minutes.Failures)},
		)
	}
	return row
}

// resetRoute is the form that closes the breaker of a route on every proxy.
func resetRoute(r *kit.Request) (*kit.Form, error) {
	id := r.PathValue("id")
	return &kit.Form{
		Title: "Reset " + id, Crumbs: []kit.Link{{Text: "Routes", URL: "/console/routes"}}, Submit: "Reset the route", Back: "/console/routes",
		Command: "gwctl routes reset " + kit.Quote(id),
		Effects: []string{"Every proxy closes the breaker of the route, and requests call it again at once. If it still fails, the breaker opens again."},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			done, err := r.API.ResetRoute(r.Context(), id, &adminclient.ResetRouteParams{Wait: kit.Wait(), IdempotencyKey: in.Key()})
			if err != nil {
				return nil, err
			}
			return kit.Go("/console/routes", kit.Applied("The route was reset.", done.Header))
		},
	}, nil
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
