package explained_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/dataplane/internal/admission"
	"modelgateway/dataplane/internal/catalog"
	"modelgateway/dataplane/internal/httpapi/explained"
	"modelgateway/dataplane/internal/route"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/event"
	"modelgateway/shared/limit"
	"modelgateway/shared/wire"
)

// A route with a cooldown is named after those to which it is second, with the reason; if no other is left, it is called.
func TestRouteWithACooldownIsNamedLast(t *testing.T) {
	t.Parallel()
	model := &catalog.Model{}
	for i, id := range []string{"first", "second"} {
		entry := catalogkv.Route{ID: id, Priority: i, Formats: []catalogkv.Format{catalogkv.Chat}, Enabled: true}
		model.Model.Routes = append(model.Model.Routes, entry)
	}
	var routes []*catalog.Route
	for _, entry := range model.Model.Routes {
		provider := &catalog.Provider{Provider: catalogkv.Provider{BaseURL: "http://" + entry.ID}, Credentials: []catalog.Credential{catalog.NewCredential("of "+entry.ID, "x")}}
		routes = append(routes, &catalog.Route{Route: entry, Provider: provider})
	}
	picker := route.New(nil)
	shown := func() []wire.ExplainRoute {
		r := explained.Routes{
			Picker:     picker,
			Model:      model,
			Format:     catalogkv.Chat,
			Candidates: routes,
			Choices:    picker.Order(routes, 0),
		}
		return r.All()
	}

	picker.StartCooldown("first", time.Hour)
	want := []wire.ExplainRoute{
		{Route: "second", URL: "http://second/v1/chat/completions", Priority: 1, Weight: 1, Credential: "of second"},
		{Route: "first", URL: "http://first/v1/chat/completions", Weight: 1, Skipped: event.SkippedCooldown},
	}
	if diff := cmp.Diff(want, shown()); diff != "" {
		t.Errorf("with a cooldown of the first (-want +got):\n%s", diff)
	}

	picker.StartCooldown("of second", 2*time.Hour)
	want = []wire.ExplainRoute{
		{Route: "first", URL: "http://first/v1/chat/completions", Weight: 1, Credential: "of first"},
		{Route: "second", URL: "http://second/v1/chat/completions", Priority: 1, Weight: 1, Skipped: event.SkippedCooldown},
	}
	if diff := cmp.Diff(want, shown()); diff != "" {
		t.Errorf("with a cooldown of both (-want +got):\n%s", diff)
	}
}

// A request needs the windows of the limits that apply to its model, and the refusal says which one is short and when it ends.
func TestRefusalNamesTheLimitThatIsShort(t *testing.T) {
	t.Parallel()
	const endMS = 1_792_000_000_000
	q := &wire.ExplainRequest{
		Record: wire.KeyRecord{Limits: []limit.Limit{
			{ID: 7, Name: "lim_7", Scope: limit.Key, Models: []string{"other"}},
			{ID: 8, Name: "lim_8", Scope: limit.Account},
		}},
		Pools: []wire.PoolState{
			{Pool: 1, Kind: wire.Balance, Total: 100, Free: 100},
			{Pool: 70, Kind: wire.Limit, Limit: 7},
			{Pool: 80, Kind: wire.Limit, Total: 10, Free: 4, Settled: 6, Limit: 8, EndMS: endMS},
		},
	}
	balance := []wire.Need{{Pool: 1, Kind: wire.Balance, Amount: 5}}
	needs := explained.AppendWindows(balance, q, "m", 5)
	if diff := cmp.Diff(append(balance, wire.Need{Pool: 80, Kind: wire.Limit, Amount: 5}), needs); diff != "" {
		t.Errorf("needs (-want +got):\n%s", diff)
	}
	refused, ok := errors.AsType[*admission.RefusedError](explained.Judge(q, needs))
	if !ok || refused.Limit == nil || refused.Limit.Name != "lim_8" || refused.ResetsAt.UnixMilli() != endMS || refused.Free != 4 || refused.Wanted != 5 {
		t.Errorf("got %+v; want a refusal because of lim_8", refused)
	}
	if err := explained.Judge(q, explained.AppendWindows(nil, q, "m", 4)); err != nil {
		t.Errorf("what fits is refused: %v", err)
	}
}
