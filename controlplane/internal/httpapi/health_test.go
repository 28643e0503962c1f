package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/postgres/catalogstore"
	"modelgateway/shared/pulse"
)

// resets returns how often each route was reset.
func (b *bundle) resets() map[string]int64 {
	b.t.Helper()
	state, err := catalogstore.New(b.db).Load(b.t.Context())
	check(b.t, err)
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
	p.apply(demoCatalog)
	unknown, err := p.api.GetRoutesHealth(t.Context())
	check(t, err)
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
	got, err := p.api.GetRoutesHealth(t.Context())
	check(t, err)
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
	b := setup(t)
	b.apply(demoCatalog)
	before, published := b.resets(), b.outboxed()
	id := ""
	for route := range before {
		id = max(id, route)
	}
	wait := adminclient.WaitForApplied
	key := "once"
	for range 2 { // the second has no effect, because it is the same request
		got, err := answered(b.api.ResetRoute(t.Context(), id, &adminclient.ResetRouteParams{Wait: &wait, IdempotencyKey: &key}))
		check(t, err)
		if got.StatusCode != http.StatusNoContent || got.Header.Get("Applied") != "true" {
			t.Fatalf("got %d %s, applied %q", got.StatusCode, got.Body, got.Header.Get("Applied"))
		}
	}
	for route, n := range b.resets() {
		if want := map[bool]int64{true: 1}[route == id]; n != want {
			t.Errorf("%s was reset %d times; want %d", route, n, want)
		}
	}
	if b.outboxed() <= published {
		t.Error("the reset is not published to the proxies")
	}
	if changes := b.apply(demoCatalog).Changes; len(changes) != 0 || b.resets()[id] != 1 {
		t.Errorf("applying the same document made the changes %+v, and left %d resets", changes, b.resets()[id])
	}
	if log, err := b.api.ListAudit(t.Context(), nil); err != nil || !strings.Contains(string(log.Body), `"reset"`) {
		t.Errorf("the reset is not in the audit log: %s, %v", log.Body, err)
	}
	none, err := answered(b.api.ResetRoute(t.Context(), "none", nil))
	check(t, err)
	problem(t, none.Problem, http.StatusNotFound, "not_found")
}
