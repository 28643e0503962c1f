package chaos

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A failure is a row of a page of failures.
type failure struct {
	// what fails.
	what string
	// holds are the invariants that tests check meanwhile, how is what they hold by.
	holds, how string
	// clients is what clients see.
	clients string
	// tests cause the failure. The name of a test in another package begins with the directory of the package.
	tests []string
}

// failurePages are the pages in docs/protocol with the areas of their tables.
var failurePages = map[string][]string{
	"failures.md":           {"A proxy", "The spool", "Usage", "Load, and faulty proxies"},
	"failures-of-stores.md": {"Revocation", "NATS", "Control planes", "Postgres"},
}

// failureTables are the tables of failurePages. Change a row here and run make generate.
var failureTables = []struct {
	area string
	rows []failure
}{
	{"A proxy", []failure{
		{
			what:  "it is killed in the middle of a stream, and its disk is kept",
			holds: "I3 I6 I8",
			how: "the spool has *started* and *progress* records; after the restart an unfinished request becomes an " +
				"`aborted` event, and the old session closes",
			clients: "a cut stream",
			tests:   []string{"TestChaos_kill9_midstream"},
		},
		{
			what:    "it is killed right after it has stored a record",
			holds:   "I3 I6 I10",
			how:     "records are stored in mapped memory, which the kernel keeps, or written",
			clients: "a cut answer",
			tests:   []string{"dataplane/internal/spool.TestRecordsSurviveSIGKILL"},
		},
		{
			what:  "its machine loses power",
			holds: "I3 I10",
			how: "records are not synced, so the end of the spool may be missing; numbers are skipped after another boot of " +
				"the machine",
			clients: "a cut stream",
			tests: []string{
				"dataplane/internal/spool.TestSequenceNumbersAreNotReusedAfterPowerLoss",
				"dataplane/internal/spool.TestPowerLossLeavesAtLeastTheRecordsOfTheSegments",
			},
		},
		{
			what:    "its machine is suspended",
			holds:   "I2 I4",
			how:     "the end of the window is compared on `CLOCK_BOOTTIME`, too",
			clients: "503, then served",
			tests: []string{
				"dataplane/internal/session.TestSessionLapsesWhileTheMachineIsSuspended",
				"TestChaos_pause_dp_60s_zombie",
			},
		},
		{
			what:    "it is paused and resumed",
			holds:   "I2 I4",
			how:     "it lapses; its session is checked in Postgres on every lease request",
			clients: "503, then served",
			tests:   []string{"TestChaos_pause_dp_60s_zombie"},
		},
		{
			what:    "it is cut off from NATS",
			holds:   "I4 I5",
			how:     "it lapses; it is fresh again when it has read a new beat, and then the changes of Postgres",
			clients: "503 after the window",
			tests: []string{
				"dataplane/internal/bus.TestProxyThatIsCutOffFromNATSStops",
				"TestProxyThatIsCutOffStopsAfterTheWindow",
			},
		},
		{
			what:    "its heartbeats arrive, but nothing reaches it",
			holds:   "I4",
			how:     "it lapses, as it reads no beat in the stream; it does not hold up a change",
			clients: "503 after the window",
			tests:   []string{"controlplane/internal/leasing.TestStreamConfirmsAChange"},
		},
		{
			what:    "its session is fenced while it serves requests",
			holds:   "I1 I2",
			how:     "they are charged to the old session; what it may hold is uncertain, so nothing is refused for it",
			clients: "503, never 402 or 429",
			tests:   []string{"TestProxyRegistersAgainUnderLoad"},
		},
		{
			what:    "it is silent for the window",
			holds:   "I2 I8",
			how:     "its session is fenced when the stream has had its end for the window",
			clients: "nothing",
			tests: []string{
				"controlplane/internal/postgres/leasestore.TestSweepMarksExpiredSessions",
				"controlplane/internal/bus.TestSessionIsFencedWhenTheStreamHasConfirmedItsEnd",
			},
		},
		{
			what:    "it is restarted while no control plane responds",
			holds:   "I1 I2 I4",
			how:     "it continues its session with the idle units that are left, if it is back within the window",
			clients: "503, then served",
			tests:   []string{"TestProxyIsRestartedWithoutControlPlanes"},
		},
		{
			what:    "all proxies are restarted",
			holds:   "I6 I8",
			how:     "spools; new sessions",
			clients: "503, then served",
			tests:   []string{"TestChaos_restart_fleet_cold"},
		},
	}},
	{"The spool", []failure{
		{
			what:    "its disk is full",
			holds:   "I9",
			how:     "capacity is reserved before admission",
			clients: "503",
			tests:   []string{"TestChaos_disk_full_no_admit"},
		},
		{
			what:    "its write buffer cannot be stored to",
			holds:   "I6 I9",
			how:     "its records are written to the segment from a copy in memory, and later ones without a buffer",
			clients: "nothing",
			tests:   []string{"dataplane/internal/spool.TestFaultOfTheMappedFileLosesNothing"},
		},
		{
			what:  "its directory is deleted or unmounted",
			holds: "I6 I9",
			how: "it is compared with the opened one twice a second; then nothing is admitted, and events are published " +
				"from memory",
			clients: "503",
			tests:   []string{"dataplane/internal/spool.TestDeletedDirectoryEndsAdmissionUntilNothingIsLeftToLose"},
		},
		{
			what:    "one request runs for long",
			holds:   "I9",
			how:     "its records move to the end of the spool, so that the segments before them can be deleted",
			clients: "nothing",
			tests:   []string{"dataplane/internal/spool.TestLongRequestDoesNotFillTheSpool"},
		},
	}},
	{"Revocation", []failure{
		{
			what:    "a key is revoked while a proxy is cut off",
			holds:   "I4",
			how:     "the proxy stops after the window; the stream confirms the revocation after window and margin",
			clients: "401; 503 from the proxy that is cut off",
			tests: []string{
				"TestChaos_cut_dp_revoke_bound",
				"controlplane/internal/leasing.TestStreamConfirmsAChange",
			},
		},
		{
			what:    "a key is revoked while its record is read",
			holds:   "I4",
			how:     "revision of the read; invalidations",
			clients: "401",
			tests:   []string{"TestChaos_revoke_vs_load_race"},
		},
		{
			what:    "a key is revoked while no control plane runs",
			holds:   "I4",
			how:     "a direct revocation: fresh proxies refuse the key at once, and control planes write it to Postgres later",
			clients: "401",
			tests: []string{
				"TestKeyIsRevokedByNATSAlone",
				"controlplane/internal/bus.TestDirectRevocationIsTakenIn",
			},
		},
		{
			what:    "a control plane ends between commit and append",
			holds:   "I4",
			how:     "another replica appends the change",
			clients: "nothing",
			tests:   []string{"controlplane/internal/bus.TestReplicasAppendEachChangeOnceAndTellProxies"},
		},
	}},
	{"NATS", []failure{
		{
			what:    "it loses unsynced data, or the usage stream",
			holds:   "I6",
			how:     "events are kept until settled; a new stream incarnation makes proxies publish all unsettled events again",
			clients: "nothing",
			tests: []string{
				"TestChaos_nats_powercut_replay",
				"TestChaos_nats_stream_deleted",
			},
		},
		{
			what:    "it loses messages of the stream of changes",
			holds:   "I4",
			how:     "the next beat is refused, and proxies lapse; control planes append the changes again",
			clients: "503 for some seconds",
			tests: []string{
				"dataplane/internal/bus.TestProxyNoticesThatTheStreamHasLostMessages",
				"controlplane/internal/bus.TestChangeThatTheStreamLosesIsAppendedAgain",
			},
		},
		{
			what:    "the leader of the stream of changes dies",
			holds:   "I4",
			how:     "proxies stay fresh, or lapse until a leader is elected; no change is missed",
			clients: "nothing, or 503 for some seconds",
			tests:   []string{"dataplane/internal/bus.TestFreshProxyInACluster"},
		},
		{
			what:    "one of three servers ends, also the one that leads the usage stream",
			holds:   "I3 I4 I6",
			how:     "planes connect to another one; a stream elects a leader, and usage waits in the spools meanwhile",
			clients: "503 for requests in flight on the ended connection",
			tests:   []string{"TestNATSServersOfAClusterAreKilledOneByOne"},
		},
		{
			what:    "a server is separated from the others",
			holds:   "I4 I6",
			how:     "proxies that are connected to it lapse",
			clients: "503 from these proxies after the window",
			tests:   []string{"TestProxyOnTheMinorityOfNATSServersStops"},
		},
		{
			what:    "a server returns with an old copy of its data",
			holds:   "I3 I4 I6",
			how:     "it gets what it lacks from the others before it counts for the quorum",
			clients: "nothing",
			tests:   []string{"TestNATSServerReturnsWithAnOldStore"},
		},
	}},
	{"Control planes", []failure{
		{
			what:    "one is killed after a commit, before the reply",
			holds:   "I1 I5",
			how:     "the repeated lease request gets the stored result",
			clients: "some ms more",
			tests:   []string{"TestChaos_cp_crash_after_commit"},
		},
		{
			what:  "one stops in a transaction that holds pools",
			holds: "I1 I5",
			how: "Postgres ends the transaction after 3 s, and those of the same replica that waited for it; at the latest " +
				"the other replicas close its connections when they fence it",
			clients: "503 for the accounts of the batch, which the other replicas serve meanwhile",
			tests:   []string{"TestHaltedControlPlaneHoldsPools"},
		},
		{
			what:    "all connections of the admin API are busy",
			holds:   "I2",
			how:     "leases, sessions and settlement have connections of their own",
			clients: "nothing",
			tests:   []string{"TestBusyAdminConnectionsDelayNoLeases"},
		},
		{
			what:    "all are unavailable for longer than the window",
			holds:   "I1 I4",
			how:     "proxies stay fresh by NATS, and serve with the units that they have",
			clients: "[by kind of client](../operations/outages.md#by-length)",
			tests: []string{
				"dataplane/internal/session.TestSessionOutlivesTheControlPlanes",
				"TestOutages",
			},
		},
		{
			what:    "they, Postgres or NATS are unavailable for longer than 15 minutes",
			holds:   "I1 I7",
			how:     "no session is closed for its silence before a replica could have heard its proxy",
			clients: "503 meanwhile; unless NATS was unavailable, the same sessions continue",
			tests:   []string{"controlplane/internal/postgres/leasestore.TestSessionIsClosedOnlyAfterItsProxyCouldBeHeard"},
		},
		{
			what:    "they, Postgres or NATS are unavailable for hours",
			holds:   "I1 I2 I3 I4 I5 I6",
			how:     "freshness; spools",
			clients: "[by kind of client](../operations/outages.md#by-length)",
			tests:   []string{"dataplane/internal/app.TestOutagesOfHours"},
		},
	}},
	{"Postgres", []failure{
		{
			what:  "it is unavailable when a credit expires",
			holds: "I12",
			how: "what was there at that moment is booked before anything else is granted or charged; requests from before pay with the " +
				"credit, those from after do not",
			clients: "as without a credit",
			tests:   []string{"TestCreditExpiresExactlyWhilePostgresIsAway"},
		},
		{
			what:    "it restarts",
			holds:   "I1 I4",
			how:     "proxies stay fresh by NATS",
			clients: "503 for central pools",
			tests:   []string{"TestChaos_pg_restart_load"},
		},
		{
			what:    "it is killed together with a control plane",
			holds:   "I1 I3",
			how:     "a server that restarts on its own disk has lost nothing, whichever replica is silent",
			clients: "503 for some seconds",
			tests:   []string{"TestPostgresAndAControlPlaneAreKilledTogether"},
		},
		{
			what:  "it fails over and loses commits",
			holds: "I1 I3 I4 I10",
			how: "cluster epoch; recovery wait, after which no fresh proxy admits under an earlier epoch; merge by the " +
				"greater total",
			clients: "503 for the recovery wait",
			tests: []string{
				"TestChaos_pg_failover_with_loss",
				"controlplane/internal/bus.TestPostgresLosesCommits",
				"TestStandbyIsPromotedThatLacksCommits",
				"controlplane/internal/bus.TestRecoveryWaitsForTheStream",
				"controlplane/internal/postgres/leasestore.TestNoSessionIsClosedForSilenceDuringTheRecoveryWait",
			},
		},
		{
			what:    "it fails over to a standby that has every commit",
			holds:   "I1 I3 I4",
			how:     "all replicas find their commits in it, so no loss is declared",
			clients: "503 until the promotion",
			tests:   []string{"TestSynchronousStandbyIsPromoted"},
		},
	}},
	{"Usage", []failure{
		{
			what:    "the usage stream is full",
			holds:   "I3 I6",
			how:     "publishing fails; events wait in the spools, and requests are served until a spool is full",
			clients: "503 from 90 % of a spool's capacity on",
			tests:   []string{"TestChaos_usage_stream_full"},
		},
		{
			what:  "settlement is behind",
			holds: "I6",
			how: "heartbeat responses say so (`usage_backlog`): unsettled events are not published again, so that the " +
				"stream does not grow by copies",
			clients: "nothing",
			tests:   []string{"shared/lease/usagelog.TestEventsAreNotMultipliedWhileSettlementIsBehind"},
		},
		{
			what:    "the consumer of the usage stream is deleted",
			holds:   "I3 I6",
			how:     "the new one begins an hour before the newest settled request",
			clients: "nothing",
			tests:   []string{"controlplane/internal/bus.TestDeletedConsumerBeginsAnHourBeforeTheNewestSettledRequest"},
		},
		{
			what:    "events arrive twice, late, or out of order",
			holds:   "I3",
			how:     "unique request id",
			clients: "nothing",
			tests:   []string{"TestChaos_dup_shuffle_events"},
		},
		{
			what:    "an event is altered and sent again",
			holds:   "I3",
			how:     "fingerprint; quarantine",
			clients: "nothing",
			tests:   []string{"TestChaos_altered_duplicate_quarantined"},
		},
		{
			what:    "two replicas settle the same events",
			holds:   "I3",
			how:     "lock order",
			clients: "nothing",
			tests:   []string{"TestChaos_settle_two_workers_no_deadlock"},
		},
	}},
	{"Load, and faulty proxies", []failure{
		{
			what:    "10 slots, 16 proxies",
			holds:   "I5",
			how:     "central mode; recalls",
			clients: "no wrong 429",
			tests:   []string{"TestChaos_limit10_16dps_no_false_429"},
		},
		{
			what:    "100 clients, money for 37 requests, 4 proxies",
			holds:   "I5 I7",
			how:     "exact refusals",
			clients: "37 × 200, 63 × 402",
			tests:   []string{"TestChaos_last_cent_race"},
		},
		{
			what:    "10,000 accounts at once",
			holds:   "I1",
			how:     "one lease request per account and proxy; batches",
			clients: "a second more",
			tests:   []string{"TestChaos_burst_10k_accounts"},
		},
		{
			what:    "eight accounts send and ask for large bodies, at a small memory limit",
			holds:   "I6",
			how:     "byte budget",
			clients: "some of these are refused, with `Retry-After`; other accounts notice nothing",
			tests:   []string{"TestChaos_large_bodies_at_a_small_memory_limit"},
		},
		{
			what:    "a proxy sends messages in the name of another's session",
			holds:   "I10",
			how:     "boot ids",
			clients: "nothing",
			tests:   []string{"shared/lease/allocator.TestRequestOfAnotherProcessIsNoRepetition"},
		},
		{
			what:    "a proxy sends messages without end",
			holds:   "I1 I2 I3 I4 I5 I6",
			how:     "bounds of a message",
			clients: "nothing",
			tests:   []string{"controlplane/internal/leasing.TestMessageBeyondTheBoundsIsRefusedAtOnce"},
		},
		{
			what:  "a proxy asks for ever greater amounts, or says that it was granted them",
			holds: "I1",
			how: "a pool has at most 2^61 units outstanding, a session was granted at most 2^62 of a pool; beyond, the " +
				"message has no effect",
			clients: "the status *unavailable*",
			tests:   []string{"shared/lease/allocator.TestNoAmountsOfAFaultyProxyMakeTheTotalsOverflow"},
		},
	}},
}

// tablesOfFailures returns the tables in Markdown.
func tablesOfFailures(areas []string) string {
	var b strings.Builder
	for _, group := range failureTables {
		if !slices.Contains(areas, group.area) {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n\n| failure | what holds | how | clients see | shown by |\n| --- | --- | --- | --- | --- |\n", group.area)
		for _, f := range group.rows {
			var tests []string
			for _, test := range f.tests {
				_, name := inPackage(test)
				tests = append(tests, "`"+name+"`")
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", f.what, f.holds, f.how, f.clients, strings.Join(tests, ", "))
		}
	}
	b.WriteString("\n")
	return b.String()
}

// inPackage returns the directory of a test and its name.
func inPackage(test string) (dir, name string) {
	if dir, name, ok := strings.Cut(test, "."); ok {
		return filepath.Join("..", "..", "..", dir), name
	}
	return ".", test
}

func TestTablesOfFailuresReferenceIsUpToDate(t *testing.T) {
	t.Parallel()
	for page, areas := range failurePages {
		keepUpToDate(t, filepath.Join("..", "..", "..", "docs", "protocol", page), "failures", tablesOfFailures(areas))
	}
}

// Every failure has tests, and every test with the prefix TestChaos_ causes a failure of the tables.
func TestEveryFailureHasATest(t *testing.T) {
	t.Parallel()
	invariants := regexp.MustCompile(`^I\d+( I\d+)*$`)
	listed, shown := map[string]bool{}, slices.Concat(slices.Collect(maps.Values(failurePages))...)
	for _, group := range failureTables {
		if !slices.Contains(shown, group.area) {
			t.Errorf("no page has the failures of %q", group.area)
		}
		for _, f := range group.rows {
			if len(f.tests) == 0 || f.how == "" || f.clients == "" || !invariants.MatchString(f.holds) {
				t.Errorf("%s: the row is not complete", f.what)
			}
			for _, test := range f.tests {
				listed[test] = true
				dir, name := inPackage(test)
				if !slices.Contains(testsIn(t, dir), name) {
					t.Errorf("%s: there is no test %s", f.what, test)
				}
			}
		}
	}

	for _, test := range testsIn(t, ".") {
		if strings.HasPrefix(test, "TestChaos_") && !listed[test] {
			t.Errorf("%s is missing in failureTables", test)
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
