package explained_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/dataplane/internal/catalog"
	"modelgateway/dataplane/internal/httpapi/explained"
	"modelgateway/dataplane/internal/route"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/event"
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
