package chaos

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// scenarios maps each failure scenario of docs/protocol.md to the tests that cover it. The name
// of a test in another package begins with the directory of the package.
var scenarios = map[string][]string{
	"kill9_midstream":                      {"TestChaos_kill9_midstream"},
	"cut_dp_revoke_bound":                  {"TestChaos_cut_dp_revoke_bound"},
	"pause_dp_60s_zombie":                  {"TestChaos_pause_dp_60s_zombie"},
	"nats_powercut_replay":                 {"TestChaos_nats_powercut_replay"},
	"nats_stream_deleted":                  {"TestChaos_nats_stream_deleted"},
	"cp_crash_after_commit":                {"TestChaos_cp_crash_after_commit"},
	"pg_restart_load":                      {"TestChaos_pg_restart_load"},
	"pg_failover_with_loss":                {"TestChaos_pg_failover_with_loss", "controlplane/internal/bus.TestPostgresLosesCommits"},
	"dup_shuffle_events":                   {"TestChaos_dup_shuffle_events"},
	"altered_duplicate_quarantined":        {"TestChaos_altered_duplicate_quarantined"},
	"suspend_clock":                        {"dataplane/internal/session.TestSessionLapsesWhileTheMachineIsSuspended", "TestChaos_pause_dp_60s_zombie"},
	"limit10_16dps_no_false_429":           {"TestChaos_limit10_16dps_no_false_429"},
	"last_cent_race":                       {"TestChaos_last_cent_race"},
	"burst_10k_accounts":                   {"TestChaos_burst_10k_accounts"},
	"disk_full_no_admit":                   {"TestChaos_disk_full_no_admit"},
	"cp_down_30min_fake_time":              {"dataplane/internal/app.TestOutagesOfHours"},
	"settle_two_workers_no_deadlock":       {"TestChaos_settle_two_workers_no_deadlock"},
	"revoke_vs_load_race":                  {"TestChaos_revoke_vs_load_race"},
	"restart_fleet_cold":                   {"TestChaos_restart_fleet_cold"},
	"usage_stream_full":                    {"TestChaos_usage_stream_full"},
	"large_bodies_at_a_small_memory_limit": {"TestChaos_large_bodies_at_a_small_memory_limit"},
}

// Every scenario has tests, and every test named after a scenario is listed.
func TestEveryScenarioHasATest(t *testing.T) {
	t.Parallel()
	const names = 21
	if len(scenarios) != names {
		t.Errorf("there are %d names; want %d", len(scenarios), names)
	}
	here := testsIn(t, ".")
	for name, tests := range scenarios {
		if len(tests) == 0 {
			t.Errorf("%s has no test", name)
		}
		for _, test := range tests {
			found := here
			if dir, elsewhere, ok := strings.Cut(test, "."); ok {
				found, test = testsIn(t, filepath.Join("..", "..", "..", dir)), elsewhere
			}
			if !slices.Contains(found, test) {
				t.Errorf("%s: there is no test %s", name, test)
			}
		}
	}
	for _, test := range here {
		if name, ok := strings.CutPrefix(test, "TestChaos_"); ok && !slices.Contains(scenarios[name], test) {
			t.Errorf("%s is missing in scenarios", test)
		}
	}
}

// testsIn lists the test functions of a directory.
func testsIn(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, declared := range file.Decls {
			if f, ok := declared.(*ast.FuncDecl); ok && strings.HasPrefix(f.Name.Name, "Test") {
				names = append(names, f.Name.Name)
			}
		}
	}
	return names
}
