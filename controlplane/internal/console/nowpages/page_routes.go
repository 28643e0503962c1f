package nowpages

import (
	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
)

// showRoutes shows the circuit breaker of each route at each proxy.
func showRoutes(r *kit.Request) (*kit.Page, error) {
	table, err := kit.ReadRoutes(r, func(*adminclient.RouteHealth) bool { return true })
	if err != nil {
		return nil, err
	}
	return &kit.Page{
		Template: "routes",
		Title:    "Routes",
		Command:  "gwctl routes health",
		Data:     table,
	}, nil
}

// resetRoute is the form that closes the breaker of a route on every proxy.
func resetRoute(r *kit.Request) (*kit.Form, error) {
	id := r.PathValue("id")
	return &kit.Form{
		Title:   "Reset " + id,
		Crumbs:  []kit.Link{{Text: "Routes", URL: "/console/routes"}},
		Submit:  "Reset the route",
		Back:    "/console/routes",
		Command: "gwctl routes reset " + kit.Quote(id),
		Effects: []string{
			"Every proxy closes the breaker of the route, and requests call it again at once. If it still fails, the breaker opens again.",
		},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			done, err := r.API.ResetRoute(r.Context(), id, &adminclient.ResetRouteParams{Wait: kit.Wait(), IdempotencyKey: in.Key()})
			if err != nil {
				return nil, err
			}
			return kit.Go("/console/routes", kit.Applied("The route was reset.", done.Header))
		},
	}, nil
}
