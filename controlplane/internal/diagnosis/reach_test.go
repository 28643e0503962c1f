package diagnosis_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"modelgateway/controlplane/internal/diagnosis"
)

// reachable answers at one address.
func reachable(_ context.Context, url string) error {
	if url == "https://up.example" {
		return nil
	}
	return errors.New("no route to host")
}

func TestUnreachableProvidersAndServicesAreReported(t *testing.T) {
	t.Parallel()
	w := sound()
	w.postgres.Providers = []diagnosis.Provider{{ID: "up", BaseURL: "https://up.example"}, {ID: "away", BaseURL: "https://away.example"}}
	r := diagnosis.New(diagnosis.Config{
		Database: database{w}, ReachFunc: reachable, ServiceFunc: reachable, Services: []string{"https://up.example", "http://gateway"},
	}).Run(t.Context())
	want := []string{"warning catalog egress", "failure services answers"}
	if got := bad(t, r); strings.Join(got, ", ") != strings.Join(want, ", ") {
		t.Errorf("got %v; want %v", got, want)
	}
	var text bytes.Buffer
	diagnosis.Print(&text, r.Findings, true)
	for _, line := range []string{"warning  catalog egress away: https://away.example does not answer: no route to host\n", "ok       services answers https://up.example: https://up.example answers\n"} {
		if !strings.Contains(text.String(), line) {
			t.Errorf("want %q in:\n%s", line, text.String())
		}
	}
}

// Before an installation there is no schema, no stream and no control plane. Everything else counts as usual.
func TestPreflightAcceptsWhatTheInstallationChanges(t *testing.T) {
	t.Parallel()
	preflight := func(w *world) *diagnosis.Report {
		return diagnosis.New(diagnosis.Config{Database: database{w}, Bus: bus{w}, Preflight: true}).Run(t.Context())
	}
	w := sound()
	w.postgres.Migration, w.postgres.ControlPlanes = 0, 0
	for i := range w.nats.Streams {
		w.nats.Streams[i].Missing = true
	}
	if got := bad(t, preflight(w)); got != nil {
		t.Errorf("got %v; want no finding", got)
	}
	w.postgres.Settings["fsync"], w.nats.Permissions.Missing = "off", []string{"publish x"}
	if got := strings.Join(bad(t, preflight(w)), ", "); got != "failure postgres fsync, failure nats permissions" {
		t.Errorf("got %v; want the setting and the permissions", got)
	}
}
