package catalogpages_test

import (
	"net/http"
	"strings"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/consoletest"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/shared/event"
	"modelgateway/shared/price"
	"modelgateway/shared/pulse"
)

func TestMaintenanceTellsWhoUsesWhatIsClosed(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	_, often := w.Customer("Often Ltd")
	_, seldom := w.Customer("Seldom Ltd")
	for range 2 {
		w.Request(often, event.Completed, price.Usage{Input: 1000})
	}
	w.Request(seldom, event.Completed, price.Usage{Input: 1000})
	model, err := w.API.GetModel(t.Context(), "example-small")
	servertest.Check(t, err)
	route := *model.Value.Routes[0].ID
	w.Live.Receive(&pulse.Report{
		V: pulse.Version, Proxy: "proxy-1", Process: "p1", InFlight: map[string]int64{"/v1/chat/completions": 7},
		Totals: []pulse.Total{
			{Series: pulse.Series{Measure: pulse.Attempts, Provider: "sim", Route: route, Outcome: "ok"}, N: 40},
			{Series: pulse.Series{Measure: pulse.Attempts, Provider: "sim", Route: route, Outcome: "timeout"}, N: 2},
		},
	})
	b := w.SignedIn(servertest.BootstrapToken)
	for path, want := range map[string][]string{
		"/console/maintenance/close?scope=system":                 {"Now 7 requests are in flight; in the last five minutes 42 calls of providers were made.", "Often Ltd (2), Seldom Ltd (1)"},
		"/console/maintenance/close?scope=provider&id=sim":        {"In the last five minutes 42 calls of providers were made for it."},
		"/console/maintenance/close?scope=model&id=example-small": {"In the last five minutes 42 calls of providers were made for it.", "Often Ltd (2), Seldom Ltd (1)"},
	} {
		answer, page := b.Get(path)
		for _, text := range want {
			if answer.StatusCode != http.StatusOK || !strings.Contains(page, text) {
				t.Errorf("%s: got %d without %q: %s", path, answer.StatusCode, text, page)
			}
		}
	}
	_, err = w.API.MaintainModel(t.Context(), "example-small", nil, adminclient.MaintenanceSet{})
	servertest.Check(t, err)
	answer, page := b.Get("/console/maintenance")
	for _, want := range []string{"In use now: 7 requests in flight, 42 calls of providers in the last five minutes; 1 of 1 proxies are heard", `data-label="Calls, last 5 min">42</td>`} {
		if answer.StatusCode != http.StatusOK || !strings.Contains(page, want) {
			t.Errorf("the page: got %d without %q: %s", answer.StatusCode, want, page)
		}
	}
	_, reader := w.NewToken(adminclient.ScopeRead)
	if answer, page := w.SignedIn(reader).Get("/console/maintenance"); answer.StatusCode != http.StatusOK || strings.Contains(page, "In use now") {
		t.Errorf("who may not observe: got %d %s", answer.StatusCode, page)
	}
}

func TestMaintenanceShowsNoZeroWhileNoProxyIsHeard(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.SmallCatalog()
	b := w.SignedIn(servertest.BootstrapToken)
	_, err := w.API.MaintainModel(t.Context(), "example-small", nil, adminclient.MaintenanceSet{})
	servertest.Check(t, err)
	if _, page := b.Get("/console/maintenance"); !strings.Contains(page, "How much is in use now is not known") || !strings.Contains(page, `data-label="Calls, last 5 min">unknown</td>`) {
		t.Errorf("the page: %s", page)
	}
	if _, page := b.Get("/console/maintenance/close?scope=system"); !strings.Contains(page, "is not known: no proxy is reporting") || !strings.Contains(page, "No request of the last hour has used it") {
		t.Errorf("the form: %s", page)
	}
}
