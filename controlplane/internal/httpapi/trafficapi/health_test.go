package trafficapi_test

import (
	"net/http"
	"strings"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/controlplane/internal/postgres/catalogstore"
	"modelgateway/shared/pulse"
)

// resets returns how often each route was reset.
func (b *server) resets() map[string]int64 {
	b.T.Helper()
	state, err := catalogstore.New(b.DB).Load(b.T.Context())
	servertest.Check(b.T, err)
	resets := map[string]int64{}
	for _, m := range state.Models {
		for id, route := range m.Routes {
			resets[id] = route.Resets
		}
	}
	return resets
}

func TestHealthListsEveryRouteOfTheCatalog(t *testing.T) {
	t.Parallel()
	p := setupTraffic(t)
	p.Apply(servertest.DemoCatalog)
	unknown, err := p.API.GetRoutesHealth(t.Context())
	servertest.Check(t, err)
	routes := p.resets()
	if len(unknown.Value.Data) != len(routes) || unknown.Value.Heard != 0 || unknown.Value.Data[0].Calls != nil {
		t.Errorf("got %s; want %d routes without figures", unknown.Body, len(routes))
	}
	failing := unknown.Value.Data[0].RouteID
	p.live.Receive(&pulse.Report{
		V: 1, Proxy: "one", Process: "p", Session: 7,
		Totals:   []pulse.Total{{Series: pulse.Series{Measure: pulse.Attempts, Provider: "sim", Route: failing, Outcome: "timeout"}, N: 3}},
		Breakers: []pulse.Breaker{{Route: failing, State: pulse.Open, SinceMS: 1000, NextTryMS: 4000, Class: "timeout", FailedMS: 1000}},
	})
	got, err := p.API.GetRoutesHealth(t.Context())
	servertest.Check(t, err)
	for _, r := range got.Value.Data {
		switch {
		case r.RouteID != failing && (len(r.Breakers) != 0 || r.Calls == nil || r.Calls.LastHour.Attempts != 0):
			t.Errorf("%+v has not failed", r)
		case r.RouteID == failing && (r.Calls.LastMinute.Failures != 3 || len(r.Breakers) != 1):
			t.Errorf("%+v: want 3 failures and a breaker", r)
		case r.RouteID == failing:
			b := r.Breakers[0]
			if b.State != adminclient.BreakerStateOpen || b.Proxy != "one" || *b.ErrorClass != "timeout" || !b.NextTry.After(*b.Since) || b.FailedAt == nil || b.AsideUntil != nil {
				t.Errorf("breaker %+v", b)
			}
		}
	}
}

func TestResetOfARouteIsAChangeThatDocumentsKeep(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(servertest.DemoCatalog)
	before, published := b.resets(), b.Outboxed()
	id := ""
	for route := range before {
		id = max(id, route)
	}
	wait := adminclient.WaitForApplied
	key := "once"
	for range 2 { // the second has no effect, because it is the same request
		got, err := servertest.Answered(b.API.ResetRoute(t.Context(), id, &adminclient.ResetRouteParams{Wait: &wait, IdempotencyKey: &key}))
		servertest.Check(t, err)
		if got.StatusCode != http.StatusNoContent || got.Header.Get("Applied") != "true" {
			t.Fatalf("got %d %s, applied %q", got.StatusCode, got.Body, got.Header.Get("Applied"))
		}
	}
	for route, n := range b.resets() {
		if want := map[bool]int64{true: 1}[route == id]; n != want {
			t.Errorf("%s was reset %d times; want %d", route, n, want)
		}
	}
	if b.Outboxed() <= published {
		t.Error("the reset is not published to the proxies")
	}
	if changes := b.Apply(servertest.DemoCatalog).Changes; len(changes) != 0 || b.resets()[id] != 1 {
		t.Errorf("applying the same document made the changes %+v, and left %d resets", changes, b.resets()[id])
	}
	if log, err := b.API.ListAudit(t.Context(), nil); err != nil || !strings.Contains(string(log.Body), `"reset"`) {
		t.Errorf("the reset is not in the audit log: %s, %v", log.Body, err)
	}
	none, err := servertest.Answered(b.API.ResetRoute(t.Context(), "none", nil))
	servertest.Check(t, err)
	servertest.Problem(t, none.Problem, http.StatusNotFound, "not_found")
}
