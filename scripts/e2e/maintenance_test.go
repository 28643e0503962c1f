package e2e

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/e2e/rig"
)

// closed waits until every proxy knows that maintenance has begun.
func (a *api) closed(t *testing.T, m *adminclient.Response[adminclient.Maintenance], err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("close for maintenance: %v", err)
	}
	a.AwaitCatalog(t, *m.Value.CatalogRevision)
}

// notice returns maintenance that lasts for a quarter of an hour at most.
func notice() adminclient.MaintenanceSet {
	return adminclient.MaintenanceSet{Message: new("Back in a quarter of an hour."), Until: new(time.Now().Add(15 * time.Minute))}
}

// TestServiceUnderMaintenanceIsUnavailable stops the whole service, so it cannot run in
// parallel with other tests.
func TestServiceUnderMaintenanceIsUnavailable(t *testing.T) { //nolint:paralleltest // see above
	r := rig.Get(t)
	a := &api{r, r.Account(t, rig.AccountSpec{})}
	set, err := a.Admin.MaintainSystem(t.Context(), nil, notice())
	defer func() { // the other tests need the service
		if open, err := a.Admin.OpenSystem(t.Context(), nil); err != nil || open.StatusCode != http.StatusNoContent {
			t.Fatalf("open the system: %s, %v", open, err)
		}
		listed, err := a.Admin.ListMaintenance(t.Context())
		if err != nil {
			t.Fatalf("list maintenance: %v", err)
		}
		a.AwaitCatalog(t, listed.Value.CatalogRevision)
		for _, e := range generations {
			a.ok(t, e.path, e.body(e.model))
		}
	}()
	a.closed(t, set, err)
	for proxy := range a.Proxies {
		for _, e := range generations {
			answer := a.Do(t, rig.Request{Proxy: proxy, Path: e.path, Key: a.account.Key, Body: e.body(e.model)})
			checkRefusal(t, e.path, answer, refusal{503, "service_unavailable", ""})
			pause, err := strconv.Atoi(answer.Header.Get("Retry-After"))
			if p := answer.Problem(t); err != nil || pause < 1 || pause > 900 || p.Message != "Back in a quarter of an hour." {
				t.Errorf("%s: got Retry-After %q, message %q", e.path, answer.Header.Get("Retry-After"), p.Message)
			}
			// Requests without a key learn nothing about it.
			a.refused(t, rig.Request{Proxy: proxy, Path: e.path, Body: e.body(e.model)}, refusal{401, "invalid_api_key", ""})
		}
		for _, path := range []string{"/v1/models", "/v1/balance"} {
			if answer := a.Do(t, rig.Request{Proxy: proxy, Path: path, Key: a.account.Key}); answer.Status != http.StatusOK {
				t.Errorf("%s under maintenance: got %s", path, answer)
			}
		}
	}
	for _, part := range []string{rig.DataPlane1, rig.DataPlane2} {
		if status, err := a.Ready(t.Context(), part); err != nil || status != http.StatusOK {
			t.Errorf("under maintenance %s is not ready: %d, %v", part, status, err)
		}
	}
	fleet, err := a.Admin.ListProxies(t.Context())
	if err != nil || len(fleet.Value.Maintenance) != 1 {
		t.Errorf("the fleet view: got %s, %v", fleet, err)
	}
}

func TestModelUnderMaintenanceIsUnavailable(t *testing.T) {
	a := newAPI(t)
	model := a.Model(t, rig.Model{})
	set, err := a.Admin.MaintainModel(t.Context(), model, nil, notice())
	a.closed(t, set, err)
	for _, e := range texts {
		a.refusedPost(t, e.path, e.body(model), refusal{503, "service_unavailable", ""})
	}
	// Maintenance ends by itself.
	var soon time.Time
	rig.Await(t, "an end of maintenance that is in the future", func(ctx context.Context) error {
		soon = time.Now().Add(2 * time.Second)
		set, err = a.Admin.MaintainModel(ctx, model, nil, adminclient.MaintenanceSet{Until: &soon})
		return err
	})
	a.closed(t, set, nil)
	a.AwaitStatus(t, rig.Request{Path: chat.path, Key: a.account.Key, Body: chat.body(model)}, http.StatusOK)
	if time.Now().Before(soon.Truncate(time.Second)) {
		t.Error("the model is open before the end of its maintenance")
	}
}

func TestProviderUnderMaintenanceGetsNothing(t *testing.T) {
	a := newAPI(t)
	u := rig.Unique()
	first, second := "first-"+u, "second-"+u
	provider := a.Provider(t, rig.Provider{BaseURL: a.Sim.URL})
	models := a.Models(t,
		rig.Model{Routes: []rig.Route{{Provider: provider, UpstreamModel: first}, {UpstreamModel: second, Priority: 1}}},
		rig.Model{Routes: []rig.Route{{Provider: provider, UpstreamModel: first}}})
	set, err := a.Admin.MaintainProvider(t.Context(), provider, nil, notice())
	a.closed(t, set, err)
	a.ok(t, chat.path, chat.body(models[0]))
	a.refusedPost(t, chat.path, chat.body(models[1]), refusal{503, "", ""})
	if got := a.routed(t, first, second); !slices.Equal(got, []int{0, 1}) {
		t.Errorf("the routes got %v requests; want none at the provider under maintenance", got)
	}
}
