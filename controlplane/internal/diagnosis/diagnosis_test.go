package diagnosis_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/internal/diagnosis"
	"modelgateway/controlplane/internal/fleet"
	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/traffic"
	"modelgateway/shared/wire"
)

// world is a healthy system, to which tests add faults.
type world struct {
	postgres  diagnosis.Postgres
	nats      diagnosis.NATS
	said      []diagnosis.Description
	fleet     fleet.Fleet
	ledger    ledger.Report
	err       error
	doubts    []traffic.UsageDoubt
	leftOut   []traffic.LeftOut
	knownKeys map[string]bool
	promises  diagnosis.Promises
}

func sound() *world {
	return &world{
		postgres: diagnosis.Postgres{
			Version: 160004, Migration: 9, Newest: 9, MaxConnections: 100, Connections: 10, ControlPlanes: 2, SecretsByMasterKey: map[string]int64{"m1": 3},
			Settings: map[string]string{"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "synchronous_standby_names": ""},
		},
		nats: diagnosis.NATS{Version: "2.15", Permissions: &diagnosis.NATSPermissions{User: "controlplane"}, Syncs: map[string]bool{"a": true, "b": true, "c": true}, Streams: []diagnosis.Stream{
			{Name: "MGW_USAGE", Replicas: 3, Wanted: 3, Consumer: "settler", Usage: true},
			{Name: "KV_mgw_catalog", Replicas: 3, Wanted: 3},
		}},
		fleet: fleet.Fleet{Rev: 5, CatalogRev: 7, Proxies: []fleet.Proxy{
			{Session: 1, Name: "one", State: fleet.Active, Build: "v1", AppliedRev: 5, CatalogRev: 7, SpoolCapacity: 100},
		}},
		said:      []diagnosis.Description{{DescribeResponse: wire.DescribeResponse{Session: 1, Name: "one", Peppers: []string{"q", "older", "p"}, FleetKey: "f"}}},
		ledger:    ledger.Report{Checks: []ledger.Check{{Name: "pool_conservation", Compared: 4}}},
		knownKeys: map[string]bool{"m1": true},
		promises:  diagnosis.Promises{KeepsCommits: "restart", Window: 20 * time.Second, RevocationBound: 23 * time.Second},
	}
}

func (w *world) Fleet(context.Context) (fleet.Fleet, error) { return w.fleet, w.err }

func (w *world) UsageDoubts() []traffic.UsageDoubt { return w.doubts }

func (w *world) LeftOut() []traffic.LeftOut { return w.leftOut }

func (w *world) CheckRecent(context.Context) (ledger.Report, error) { return w.ledger, w.err }

// Both interfaces have a method of the same name.
type (
	database struct{ *world }
	bus      struct{ *world }
)

func (d database) Diagnose(context.Context) (diagnosis.Postgres, error) { return d.postgres, d.err }

func (b bus) Diagnose(context.Context) (diagnosis.NATS, error) { return b.nats, b.err }

func (b bus) Describe(context.Context, int) ([]diagnosis.Description, error) { return b.said, b.err }

func (w *world) run(t *testing.T) *diagnosis.Report {
	t.Helper()
	return diagnosis.New(diagnosis.Config{
		Database: database{w}, Bus: bus{w}, Fleet: w, Ledger: w, Traffic: w, Build: "v1", Promises: &w.promises,
		Secrets: &diagnosis.Secrets{Peppers: []string{"p", "q"}, FleetKey: "f", KnowsFunc: func(id string) bool { return w.knownKeys[id] }},
	}).Run(t.Context())
}

// bad returns the findings that are not OK, and fails the test for one without advice.
func bad(t *testing.T, r *diagnosis.Report) []string {
	t.Helper()
	var all []string
	for _, f := range r.Findings {
		if f.Detail == "" || (f.Status == diagnosis.OK) != (f.Meaning == "" && f.Advice == "") {
			t.Errorf("differs from the expected content: %+v", f)
		}
		if f.Status != diagnosis.OK {
			all = append(all, string(f.Status)+" "+f.Area+" "+f.Check)
		}
	}
	return all
}

func TestHealthySystemHasNoFindings(t *testing.T) {
	t.Parallel()
	r := sound().run(t)
	if wrong := bad(t, r); wrong != nil || r.Status() != diagnosis.OK || len(r.Findings) < 20 {
		t.Errorf("%d findings, %v", len(r.Findings), wrong)
	}
}

func TestFactsGiveFindings(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		broke func(*world)
		want  string
	}{
		{"new installation", func(w *world) { w.fleet.CatalogRev, w.fleet.Proxies[0].CatalogRev = 0, 0 }, "failure proxies catalog"},
		{"no key or account has changed yet", func(w *world) { w.fleet.Rev = 0 }, ""},
		{"old server", func(w *world) { w.postgres.Version = 140010 }, "failure postgres version"},
		{"standby", func(w *world) { w.postgres.InRecovery = true }, "failure postgres primary"},
		{"old schema", func(w *world) { w.postgres.Migration = 8 }, "failure postgres migrations"},
		{"newer schema", func(w *world) { w.postgres.Migration = 10 }, ""},
		{"fsync off", func(w *world) { w.postgres.Settings["fsync"] = "off" }, "failure postgres fsync"},
		{"torn pages", func(w *world) { w.postgres.Settings["full_page_writes"] = "off" }, "failure postgres full_page_writes"},
		{"commits that are not written", func(w *world) { w.postgres.Settings["synchronous_commit"] = "off" }, "failure postgres synchronous_commit"},
		{"commits that a standby has", func(w *world) { w.postgres.Settings["synchronous_commit"] = "remote_apply" }, ""},
		{"a failover that keeps commits without synchronous replication", func(w *world) { w.promises.KeepsCommits = "failover" }, "warning postgres keeps_commits"},
		{"a failover that keeps commits with a synchronous standby", func(w *world) {
			w.promises.KeepsCommits, w.postgres.Settings["synchronous_standby_names"] = "failover", "ANY 1 (a, b)"
		}, ""},
		{"commits that do not wait for the synchronous standby", func(w *world) {
			w.promises.KeepsCommits, w.postgres.Settings["synchronous_standby_names"], w.postgres.Settings["synchronous_commit"] = "failover", "*", "local"
		}, "warning postgres keeps_commits"},
		{"a synchronous standby that nothing relies on", func(w *world) { w.postgres.Settings["synchronous_standby_names"] = "*" }, ""},
		{"few connections", func(w *world) { w.postgres.Connections = 91 }, "warning postgres connections"},
		{"clock behind", func(w *world) { w.postgres.Skew = -2 * time.Second }, "failure postgres clock"},
		{"clock a little off", func(w *world) { w.postgres.Skew = 150 * time.Millisecond }, "warning postgres clock"},
		{"a long way to the clock", func(w *world) { w.postgres.Skew, w.postgres.Uncertainty = 2*time.Second, 2*time.Second }, ""},
		{"outbox waits", func(w *world) { w.postgres.OutboxAge = 11 * time.Second }, "warning postgres outbox"},
		{"outbox is stuck", func(w *world) { w.postgres.OutboxAge = time.Hour }, "failure postgres outbox"},
		{"outbox works", func(w *world) { w.postgres.OutboxAge = time.Second }, ""},
		{"a bill that differs", func(w *world) { w.postgres.OverdueBills = 1 }, "warning postgres provider_bills"},
		{"quarantine", func(w *world) { w.postgres.Quarantined = 1 }, "warning postgres quarantine"},
		{"master key gone", func(w *world) { w.postgres.SecretsByMasterKey["m0"] = 2 }, "failure secrets master_keys"},
		{"stream gone", func(w *world) { w.nats.Streams[1].Missing = true }, "failure nats exists"},
		{"stream changed", func(w *world) { w.nats.Streams[0].Differences = []string{"max_age is 1s"} }, "failure nats settings"},
		{"consumer gone", func(w *world) { w.nats.Streams[0].ConsumerMissing = true }, "failure nats consumer"},
		{"permission missing", func(w *world) { w.nats.Permissions.Missing = []string{"publish x"} }, "failure nats permissions"},
		{"permission too many", func(w *world) { w.nats.Permissions.Extra = []string{"publish >"} }, "warning nats permissions"},
		{"permissions not told", func(w *world) { w.nats.Permissions = nil }, "warning nats permissions"},
		{"replica behind", func(w *world) { w.nats.Streams[0].Offline = 1 }, "warning nats followers"},
		{"fewer replicas", func(w *world) { w.nats.Streams[1].Replicas = 1 }, "warning nats replicas"},
		{"servers that were not asked whether they sync", func(w *world) { w.nats.Syncs = nil }, "warning nats sync"},
		{"one of three servers was not asked whether it syncs", func(w *world) { delete(w.nats.Syncs, "c") }, "warning nats sync"},
		{"three servers, one of which does not sync", func(w *world) { w.nats.Syncs["c"] = false }, "warning nats sync"},
		{"one server that does not sync", func(w *world) {
			w.nats.Streams[0].Replicas, w.nats.Streams[0].Wanted, w.nats.Syncs = 1, 1, map[string]bool{"a": false}
		}, "warning nats sync"},
		{"one server that syncs", func(w *world) {
			w.nats.Streams[0].Replicas, w.nats.Streams[0].Wanted, w.nats.Syncs = 1, 1, map[string]bool{"a": true}
		}, ""},
		{"no control plane", func(w *world) { w.postgres.ControlPlanes = 0 }, "failure postgres control_planes"},
		{"recovery wait", func(w *world) { w.postgres.Recovering = true }, "failure postgres recovery_wait"},
		{"model without a route", func(w *world) { w.postgres.UnusableModels = []string{"m"} }, "failure catalog usable_route"},
		{"limit of nothing", func(w *world) {
			w.postgres.UselessLimits = []diagnosis.UselessLimit{{ID: "lim_1", Problem: diagnosis.NoAmount}}
		}, "warning limits amount"},
		{"spend limit of nothing", func(w *world) {
			w.postgres.UselessLimits = []diagnosis.UselessLimit{{ID: "key_1", Problem: diagnosis.NoAmount, OfKey: true}}
		}, "warning limits amount"},
		{"limit of no model", func(w *world) {
			w.postgres.UselessLimits = []diagnosis.UselessLimit{{ID: "lim_1", Problem: diagnosis.NoModel}}
		}, "warning limits models"},
		{"key for no model", func(w *world) {
			w.postgres.UselessLimits = []diagnosis.UselessLimit{{ID: "key_1", Problem: diagnosis.NoModel, OfKey: true}}
		}, "warning limits models"},
		{"raise to less", func(w *world) {
			w.postgres.UselessLimits = []diagnosis.UselessLimit{{ID: "lim_1", Problem: diagnosis.LowRaise}}
		}, "warning limits raise"},
		{"limit below any cost", func(w *world) {
			w.postgres.UselessLimits = []diagnosis.UselessLimit{{ID: "lim_1", Problem: diagnosis.LowAmount}}
		}, "warning limits low"},
		{"balance below any cost", func(w *world) {
			w.postgres.UselessLimits = []diagnosis.UselessLimit{{ID: "acc_1", Problem: diagnosis.LowAmount, OfAccount: true}}
		}, "warning limits low"},
		{"tools without a price", func(w *world) { w.postgres.UnpricedTools = []diagnosis.UnpricedTools{{Model: "m", Calls: 3}} }, "warning catalog tool_price"},
		{"credential refused", func(w *world) {
			w.fleet.RefusedCredentials = []fleet.RefusedCredential{{Provider: "p", Credential: "main", Reason: wire.KeyRejected}}
		}, "warning proxies credentials"},
		{"credential cannot be renewed", func(w *world) {
			w.fleet.RefusedCredentials = []fleet.RefusedCredential{{Provider: "p", Credential: "main", Reason: wire.SourceFailing}}
		}, "warning proxies credentials"},
		{"credential has no valid token", func(w *world) {
			w.fleet.RefusedCredentials = []fleet.RefusedCredential{{Provider: "p", Credential: "main", Reason: wire.SourceFailed}}
		}, "failure proxies credentials"},
		{"last credential refused", func(w *world) { w.postgres.RefusingProviders = []string{"p"} }, "failure catalog usable_credential"},
		{"client certificate expires", func(w *world) {
			w.postgres.Certificates = []diagnosis.Certificate{{Provider: "p", Credential: "main", Expires: time.Now().Add(13 * 24 * time.Hour)}}
		}, "warning catalog certificate"},
		{"issuer expires soon", func(w *world) {
			w.postgres.Certificates = []diagnosis.Certificate{{Provider: "p", Expires: time.Now().Add(2 * 24 * time.Hour)}}
		}, "failure catalog certificate"},
		{"certificate has expired", func(w *world) {
			w.postgres.Certificates = []diagnosis.Certificate{{Provider: "p", Expires: time.Now().Add(-time.Hour)}}
		}, "failure catalog certificate"},
		{"certificate lasts", func(w *world) {
			w.postgres.Certificates = []diagnosis.Certificate{{Provider: "p", Expires: time.Now().Add(15 * 24 * time.Hour)}}
		}, ""},
		{"usage in doubt", func(w *world) {
			w.doubts = []traffic.UsageDoubt{{Provider: "p", Reason: "low_output", Answers: 4, Of: 500}, {Provider: "p", Reason: "missing", Answers: 2, Of: 500}}
		}, "warning catalog usage"},
		{"added member refused", func(w *world) {
			w.leftOut = []traffic.LeftOut{{Provider: "p", Route: "r", Member: "store", Calls: 4}}
		}, "warning catalog added_members"},
		{"calls fail", func(w *world) { w.said[0].FailingRoutes = []string{"r"} }, "warning catalog calls"},
		{"no route works", func(w *world) { w.said[0].FailingModels = []string{"m"} }, "failure catalog served"},
		{"proxy without a catalog", func(w *world) { w.said[0].NotReady = map[string]string{"catalog": "no snapshot"} }, "failure proxies ready"},
		{"draining proxy", func(w *world) {
			w.said[0].NotReady, w.fleet.Proxies[0].Draining = map[string]string{"process": "draining"}, true
		}, ""},
		{"lag", func(w *world) { w.nats.Streams[0].Waiting, w.nats.Streams[0].Oldest = 3, time.Now().Add(-time.Minute) }, "warning nats usage_lag"},
		{"long lag", func(w *world) { w.nats.Streams[0].Waiting, w.nats.Streams[0].Oldest = 3, time.Now().Add(-time.Hour) }, "failure nats usage_lag"},
		{"work", func(w *world) { w.nats.Streams[0].Waiting, w.nats.Streams[0].Oldest = 3, time.Now() }, ""},
		{"no proxies", func(w *world) { w.fleet.Proxies = nil }, "failure proxies live"},
		{"expired session", func(w *world) {
			w.fleet.Proxies = append(w.fleet.Proxies, fleet.Proxy{Session: 2, Name: "two", State: fleet.Expired})
		}, "warning proxies session"},
		{"usage that nobody serves", func(w *world) {
			w.fleet.Proxies = append(w.fleet.Proxies, fleet.Proxy{Session: 2, Name: "two", State: fleet.Closed, Left: 4})
		}, "warning proxies unsettled"},
		{"usage stream nearly full", func(w *world) { w.nats.Streams[0].Bytes, w.nats.Streams[0].MaxBytes = 75<<20, 100<<20 }, "warning nats usage_size"},
		{"usage stream full", func(w *world) { w.nats.Streams[0].Bytes, w.nats.Streams[0].MaxBytes = 95<<20, 100<<20 }, "failure nats usage_size"},
		{"usage stream with room", func(w *world) { w.nats.Streams[0].Bytes, w.nats.Streams[0].MaxBytes = 60<<20, 100<<20 }, ""},
		{"fenced session", func(w *world) {
			w.fleet.Proxies = append(w.fleet.Proxies, fleet.Proxy{Session: 2, Name: "two", State: fleet.Fenced})
		}, ""},
		{"behind with keys", func(w *world) { w.fleet.Rev = 6 }, "warning proxies applied_revision"},
		{"behind with the catalog", func(w *world) { w.fleet.CatalogRev = 8 }, "warning proxies catalog_revision"},
		{"spool fills up", func(w *world) { w.fleet.Proxies[0].SpoolUsed = 50 }, "warning proxies spool"},
		{"spool full", func(w *world) { w.fleet.Proxies[0].SpoolUsed = 95 }, "failure proxies spool"},
		{"two versions", func(w *world) {
			other := w.fleet.Proxies[0]
			other.Session, other.Build = 2, "v2"
			w.fleet.Proxies = append(w.fleet.Proxies, other)
			w.said = append(w.said, diagnosis.Description{DescribeResponse: wire.DescribeResponse{Session: 2, Peppers: []string{"p", "q"}, FleetKey: "f"}})
		}, "warning proxies versions"},
		{"another pepper", func(w *world) { w.said[0].Peppers = []string{"old"} }, "failure secrets pepper"},
		{"only the pepper of before", func(w *world) { w.said[0].Peppers = []string{"q"} }, "failure secrets pepper"},
		{"only the current pepper", func(w *world) { w.said[0].Peppers = []string{"p"} }, "warning secrets pepper"},
		{"another fleet key", func(w *world) { w.said[0].FleetKey = "g" }, "failure secrets fleet_key"},
		{"a fleet key that is replaced", func(w *world) { w.said[0].FleetKey, w.said[0].PreviousFleetKeys = "g", []string{"e", "f"} }, ""},
		{"clock of a proxy", func(w *world) { w.said[0].Skew = time.Minute }, "failure proxies clock"},
		{"silent proxy", func(w *world) { w.said = nil }, "warning proxies answers"},
		{"answer of an earlier session", func(w *world) { w.said[0].Session = 9 }, "warning proxies answers"},
		{"books", func(w *world) {
			w.ledger.Checks[0].Differing, w.ledger.Checks[0].First = 1, &ledger.Difference{Row: "pool 1", Want: 2, Got: 3}
		}, "failure ledger pool_conservation"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := sound()
			tt.broke(w)
			var want []string
			if tt.want != "" {
				want = []string{tt.want}
			}
			if diff := cmp.Diff(want, bad(t, w.run(t))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// An operator reads in the report for how long the installation serves without a control plane and when a revocation is effective.
func TestReportSaysWhatTheInstallationGuarantees(t *testing.T) {
	t.Parallel()
	w := sound()
	checkDetails(t, w, map[string]string{
		"postgres keeps_commits ":   "postgres.keeps_commits = restart, synchronous_standby_names = \"\", synchronous_commit = on: a standby that is promoted may lack the newest commits, which is treated as a loss",
		"nats replicas MGW_USAGE":   "3 of 3 replicas",
		"nats sync MGW_USAGE":       "each message is stored on 3 servers, which sync it to disk before the acknowledgement",
		"proxies cover ":            "if a proxy and its spool are lost, its units stay reserved for 15m0s, not counting outages",
		"proxies serves_alone ":     "session.window = 20s: without a control plane a proxy admits requests as long as NATS has a quorum and its idle units last, and without NATS for 20s at most",
		"proxies revocation_bound ": "a revocation waits 23s at most for a proxy that is stopped or cut off, without a control plane, too (gwctl keys revoke-direct)",
	})
}

// No server was asked in the dev stack: the report must not begin with "0 servers say".
func TestUnseenSyncIsCalledUnseen(t *testing.T) {
	t.Parallel()
	w := sound()
	w.nats.Syncs = nil
	checkDetails(t, w, map[string]string{
		"nats sync MGW_USAGE": "each message is stored on 3 servers; whether it is synced to disk before the acknowledgement cannot be seen from here",
	})
}

// checkDetails compares the details of findings, by area, check and subject.
func checkDetails(t *testing.T, w *world, want map[string]string) {
	t.Helper()
	details := map[string]string{}
	for _, f := range w.run(t).Findings {
		details[f.Area+" "+f.Check+" "+f.Subject] = f.Detail
	}
	for check, want := range want {
		if details[check] != want {
			t.Errorf("%s: got %q; want %q", check, details[check], want)
		}
	}
}

func TestUnreachableServersAreFindings(t *testing.T) {
	t.Parallel()
	w := sound()
	w.err = errors.New("refused")
	r := w.run(t)
	want := []string{"failure postgres reachable", "failure nats reachable", "failure proxies reachable", "failure ledger reachable"}
	if diff := cmp.Diff(want, bad(t, r)); diff != "" || r.Status() != diagnosis.Failure {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAreasWithoutASourceAreSkipped(t *testing.T) {
	t.Parallel()
	if r := diagnosis.New(diagnosis.Config{}).Run(t.Context()); len(r.Findings) > 0 {
		t.Errorf("found %v", r.Findings)
	}
}

func TestUsageIsInDoubtOnlyIfAProviderReportsItBadlyAndOften(t *testing.T) {
	t.Parallel()
	w := sound()
	w.doubts = []traffic.UsageDoubt{
		{Provider: "a", Reason: "missing", Answers: 5, Of: 5},
		{Provider: "b", Reason: "missing", Answers: 600, Of: 60_000},
		{Provider: "c", Reason: "interrupted", Answers: 600, Of: 700},
		{Provider: "d", Reason: "ambiguous", Answers: 600, Of: 700},
	}
	if wrong := bad(t, w.run(t)); wrong != nil {
		t.Errorf("got %v", wrong)
	}
}
