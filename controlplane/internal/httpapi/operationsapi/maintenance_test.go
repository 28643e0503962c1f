package operationsapi_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/catalog"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/controlplane/internal/postgres/catalogstore"
	"modelgateway/shared/catalogkv"
)

// closedIn returns the maintenance in the catalog.
func (b *server) closedIn() (system *catalogkv.Maintenance, model, provider *catalogkv.Maintenance) {
	b.T.Helper()
	state, err := catalogstore.New(b.DB).Load(b.T.Context())
	servertest.Check(b.T, err)
	return state.Settings.Maintenance, state.Models["demo/image"].Spec.Maintenance, state.Providers["sim"].Spec.Maintenance
}

func TestMaintenance(t *testing.T) {
	t.Parallel()
	b := start(t)
	revision := b.Apply(servertest.DemoCatalog).Revision
	until := time.Now().Add(time.Hour).Truncate(time.Second).UTC()
	notice := adminclient.MaintenanceSet{Message: new("Back soon."), Until: &until}
	system, err := servertest.Answered(b.API.MaintainSystem(t.Context(), nil, adminclient.MaintenanceSet{}))
	servertest.Check(t, err)
	model, err := servertest.Answered(b.API.MaintainModel(t.Context(), "demo/image", nil, notice))
	servertest.Check(t, err)
	published := b.Outboxed()
	provider, err := servertest.Answered(b.API.MaintainProvider(t.Context(), "sim", nil, notice))
	servertest.Check(t, err)
	if b.Outboxed() <= published {
		t.Error("the maintenance of a provider is not published to the proxies")
	}
	if system.StatusCode != http.StatusOK || model.StatusCode != http.StatusOK || provider.StatusCode != http.StatusOK {
		t.Fatalf("got %s, %s, %s", system.Body, model.Body, provider.Body)
	}
	if got := *provider.Value.CatalogRevision; got <= revision {
		t.Errorf("the change is in revision %d of the catalog, which was at %d before", got, revision)
	}
	want := []adminclient.Maintenance{
		{Scope: adminclient.MaintenanceScopeSystem, Active: true},
		{Scope: adminclient.MaintenanceScopeModel, ID: new("demo/image"), Message: new("Back soon."), Until: &until, Active: true},
		{Scope: adminclient.MaintenanceScopeProvider, ID: new("sim"), Message: new("Back soon."), Until: &until, Active: true},
	}
	listed, err := servertest.Answered(b.API.ListMaintenance(t.Context()))
	servertest.Check(t, err)
	if diff := cmp.Diff(want, listed.Value.Data); diff != "" || listed.Value.CatalogRevision != *provider.Value.CatalogRevision {
		t.Errorf("listed at %d (-want +got):\n%s", listed.Value.CatalogRevision, diff)
	}
	fleet, err := servertest.Answered(b.API.ListProxies(t.Context()))
	servertest.Check(t, err)
	if diff := cmp.Diff(want, fleet.Value.Maintenance); diff != "" {
		t.Errorf("in the fleet view (-want +got):\n%s", diff)
	}
	s, m, p := b.closedIn()
	stored := &catalogkv.Maintenance{Message: "Back soon.", UntilUnix: until.Unix()}
	if diff := cmp.Diff([]*catalogkv.Maintenance{{}, stored, stored}, []*catalogkv.Maintenance{s, m, p}); diff != "" {
		t.Errorf("in the catalog (-want +got):\n%s", diff)
	}
	if again := b.Apply(servertest.DemoCatalog); len(again.Changes) != 0 {
		t.Errorf("a catalog that is applied again changes %v", servertest.Summary(again))
	}

	for range 2 { // opening twice is no error
		for what, open := range map[string]func() (int, error){
			"system": func() (int, error) {
				r, err := servertest.Answered(b.API.OpenSystem(t.Context(), nil))
				return r.StatusCode, err
			},
			"model": func() (int, error) {
				r, err := servertest.Answered(b.API.OpenModel(t.Context(), "demo/image", nil))
				return r.StatusCode, err
			},
			"provider": func() (int, error) {
				r, err := servertest.Answered(b.API.OpenProvider(t.Context(), "sim", nil))
				return r.StatusCode, err
			},
		} {
			if status, err := open(); err != nil || status != http.StatusNoContent {
				t.Errorf("open %s: got %d, %v", what, status, err)
			}
		}
	}
	if s, m, p := b.closedIn(); s != nil || m != nil || p != nil {
		t.Errorf("still closed: %v, %v, %v", s, m, p)
	}
}

// Maintenance whose end has passed is listed, but not active.
func TestEndedMaintenanceIsListedAsInactive(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(servertest.DemoCatalog)
	store := catalogstore.New(b.DB)
	_, err := store.Apply(t.Context(), func(state *catalog.State) (*catalog.Plan, error) {
		settings := state.Settings
		settings.Maintenance = &catalogkv.Maintenance{UntilUnix: time.Now().Unix()}
		return &catalog.Plan{Settings: &settings, Changes: []catalog.Change{{}}}, nil
	}, func(_, _ *catalog.State) ([]catalog.Entry, error) { return nil, nil })
	servertest.Check(t, err)
	listed, err := servertest.Answered(b.API.ListMaintenance(t.Context()))
	servertest.Check(t, err)
	if got := listed.Value.Data; len(got) != 1 || got[0].Active {
		t.Errorf("listed: %s", listed.Body)
	}
	fleet, err := servertest.Answered(b.API.ListProxies(t.Context()))
	servertest.Check(t, err)
	if len(fleet.Value.Maintenance) != 0 {
		t.Errorf("in the fleet view: %s", fleet.Body)
	}
}

func TestInvalidMaintenanceIsRejected(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(servertest.DemoCatalog)
	faulty, err := servertest.Answered(b.API.MaintainSystem(t.Context(), nil, adminclient.MaintenanceSet{
		Message: new(strings.Repeat("é", 501)), Until: new(time.Now().Add(-time.Second)),
	}))
	servertest.Check(t, err)
	servertest.Problem(t, faulty.Problem, http.StatusBadRequest, "invalid_input")
	var fields []string
	for _, e := range faulty.Problem.Errors {
		fields = append(fields, e.Field)
	}
	if diff := cmp.Diff([]string{"message", "until"}, fields); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
	for _, body := range []adminclient.MaintenanceSet{{Until: new(time.Now().AddDate(2, 0, 0))}, {Message: new("a\nb")}} {
		r, err := servertest.Answered(b.API.MaintainSystem(t.Context(), nil, body))
		servertest.Check(t, err)
		servertest.Problem(t, r.Problem, http.StatusBadRequest, "invalid_input")
	}
	model, err := servertest.Answered(b.API.MaintainModel(t.Context(), "nothing", nil, adminclient.MaintenanceSet{}))
	servertest.Check(t, err)
	servertest.Problem(t, model.Problem, http.StatusNotFound, "not_found")
	provider, err := servertest.Answered(b.API.MaintainProvider(t.Context(), "nothing", nil, adminclient.MaintenanceSet{}))
	servertest.Check(t, err)
	servertest.Problem(t, provider.Problem, http.StatusNotFound, "not_found")
}
