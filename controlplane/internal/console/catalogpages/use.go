package catalogpages

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
	"modelgateway/controlplane/internal/console/view"
)

// use is what is used now, as the proxies report it.
type use struct {
	// Problem is why it could not be read; the other members are then empty.
	Problem string
	// Heard and Silent count the proxies that it is of.
	Heard, Silent int
	// InFlight is the number of requests that are handled now.
	InFlight int64
	routes   []adminclient.RouteHealth
}

// readUse returns nil for a person who may not observe.
func readUse(r *kit.Request) *use {
	if !r.May(kit.Observe) {
		return nil
	}

	now, err := r.API.GetTraffic(r.Context())
	if err != nil {
		return &use{Problem: err.Error()}
	}

	routes, err := r.API.GetRoutesHealth(r.Context())
	if err != nil {
		return &use{Problem: err.Error()}
	}

	u := &use{Heard: now.Value.Heard, Silent: now.Value.Silent, routes: routes.Value.Data}
	if now.Value.Current != nil {
		for _, n := range now.Value.Current.InFlight {
			u.InFlight += n
		}
	}

	return u
}

// Calls returns the calls of providers in the last five minutes for a model, to a provider, or in all; "unknown" if no proxy
// reports.
func (u *use) Calls(scope adminclient.MaintenanceScope, id *string) string {
	if u.Heard == 0 {
		return "unknown"
	}
	return view.Count(u.calls(scope, id))
}

func (u *use) calls(scope adminclient.MaintenanceScope, id *string) int64 {
	sum := int64(0)
	for i := range u.routes {
		route := &u.routes[i]
		uses := id == nil || scope == adminclient.MaintenanceScopeModel && route.Model == *id ||
			scope == adminclient.MaintenanceScopeProvider && route.ProviderID == *id
		if uses && route.Calls != nil {
			sum += route.Calls.Last5Minutes.Attempts
		}
	}
	return sum
}

// Running is the number of requests that are handled now, in words.
func (u *use) Running() string { return number(u.InFlight, "request") }

// Called is Calls in words.
func (u *use) Called(scope adminclient.MaintenanceScope, id *string) string {
	return number(u.calls(scope, id), "call")
}

// lastRequests is how many requests are looked at for who uses something, namedUsers how many accounts are named.
const lastRequests, namedUsers = 100, 5

// inUse tells who is using the target now. It tells that it cannot, if it cannot.
func (t *target) inUse(r *kit.Request) []string {
	u := readUse(r)
	if u == nil {
		return nil
	}
	if u.Problem != "" {
		return []string{"Whether it is in use cannot be read: " + u.Problem}
	}

	var id *string
	if t.id != "" {
		id = &t.id
	}

	calls := u.calls(t.scope, id)
	text := fmt.Sprintf("In the last five minutes %s of providers %s made for it.", number(calls, "call"), were(calls))
	if u.Heard == 0 {
		text = "How often it is called now is not known: no proxy is reporting."
	}
	if t.scope == adminclient.MaintenanceScopeSystem && u.Heard > 0 {
		text = fmt.Sprintf(
			"Now %s %s in flight; in the last five minutes %s of providers %s made.",
			u.Running(),
			are(u.InFlight),
			number(calls, "call"),
			were(calls),
		)
	}

	users, err := t.users(r)
	if err != nil {
		return []string{text, "Who uses it cannot be read: " + err.Error()}
	}

	return []string{text, users}
}

// users names the accounts of the last requests of the last hour.
func (t *target) users(r *kit.Request) (string, error) {
	params := &adminclient.ListUsageParams{From: new(time.Now().UTC().Add(-time.Hour)), Limit: new(lastRequests)}
	switch t.scope {
	case adminclient.MaintenanceScopeModel:
		params.Model = &t.id
	case adminclient.MaintenanceScopeProvider:
		params.Provider = &t.id
	case adminclient.MaintenanceScopeSystem:
	}

	answer, err := r.API.ListUsage(r.Context(), params)
	if err != nil {
		return "", err
	}

	counts := map[string]int{}
	for _, u := range answer.Value.Data {
		counts[u.AccountID]++
	}

	if len(counts) == 0 {
		return "No request of the last hour has used it.", nil
	}

	ids := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		if counts[a] != counts[b] {
			return counts[b] - counts[a]
		}
		return strings.Compare(a, b)
	})
	names, err := kit.Names(r, ids[:min(len(ids), namedUsers)])
	if err != nil {
		return "", err
	}

	var users []string
	for _, id := range ids[:min(len(ids), namedUsers)] {
		users = append(users, fmt.Sprintf("%s (%d)", cmp.Or(names[id], view.ShortID(id)), counts[id]))
	}

	if more := len(ids) - namedUsers; more > 0 {
		users = append(users, fmt.Sprintf("and %d more accounts", more))
	}

	of := "The requests of the last hour that have used it"
	if answer.Value.NextCursor != nil {
		of = fmt.Sprintf("The last %d requests that have used it", lastRequests)
	}

	return of + " were of " + strings.Join(users, ", ") + ".", nil
}
