package sim

import (
	"testing"
	"time"
)

// seedsInTest is how many seeds the tests run; `make sim` runs more.
const seedsInTest = 150

// regressions are seeds that once found a fault, by its name, or in which a check was wrong.
var regressions = map[string]struct {
	profile string
	seed    uint64
}{
	"a late heartbeat that was sent after the deadline": {"", 367},
	"a late failure of a queue that is closed":          {"", 4303},
	"a replica that is resumed for a moment":            {"top-ups", 2888},
	"a key without a limit in a resumed session":        {"", 12851},
}

// Every change of the protocol must pass this test. It also checks that the seeds
// contain every kind of fault.
func TestInvariantsHold(t *testing.T) {
	t.Parallel()
	var total Stats
	begun := time.Now()
	Search(1, seedsInTest, Correct, func(r Result) bool {
		total.Add(r.Stats)
		if r.Violation != "" {
			t.Errorf("seed %d (%s): %s\nrun it again: make sim SEED=%d TRACE=1", r.Seed, r.Profile.Name, r.Violation, r.Seed)
		}
		return true
	})
	t.Logf("%d worlds in %s, %d steps, %d admitted, %d refused", seedsInTest, time.Since(begun), total.Steps, total.Admitted, total.Refused)
	for _, what := range []string{
		"admissions without a lease request", "recalls", "revocations confirmed", "sessions fenced", "sessions that are to end", "sessions whose end the stream has confirmed", "stream of changes down", "streams of changes created again",
		"acknowledged changes lost", "proxies on the minority", "beats refused", "changes appended again", "processes stopped", "machines suspended", "streams deleted",
		"stream tails lost", "spools lost", "losses of commits declared", "crashes after commit", "commits without an answer", "gaps in pushed changes",
		"processes stalled", "sessions that pushes do not reach", "requests aborted", "altered duplicates", "sessions closed after expiry", "all proxies killed", "pools adjusted",
		"accounts whose idle units are used in an outage", "accounts that become idle in an outage", "balances that one proxy needs of all", "unused queues dropped", "reports made up",
		"messages of another process", "messages beyond the bounds", "requests aborted at once", "lease requests that top up idle units",
		"windows of the period first_use", "windows of the period fixed", "windows of the period forever", "requests moved to another window", nearTheEnd,
		"limits added", "limits removed", "limits changed", "limits raised until a time", "raises that ended",
		"keys moved", "pauses of keys confirmed", "keys rotated", "expiries of keys confirmed",
		"Postgres away for long", "bus away for long", "replicas stopped for long", "machines of replicas suspended for long",
	} {
		if total.Faults[what] == 0 {
			t.Errorf("no seed of %d has %s, so they are not tested", seedsInTest, what)
		}
	}
}

func TestRegressions(t *testing.T) {
	t.Parallel()
	for name, of := range regressions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rules := CorrectIn(of.profile)
			rules.Limits.Never = true // as when they were found
			if r := Run(of.seed, rules, false); r.Violation != "" {
				t.Errorf("seed %d: %s", of.seed, r.Violation)
			}
		})
	}
}

func TestSeedsAreReproducible(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		first, second := Run(seed, Correct(), true), Run(seed, Correct(), true)
		if first.Trace != second.Trace || first.Stats.Steps != second.Stats.Steps || first.Trace == "" {
			t.Errorf("two runs of seed %d differ, or have no trace: %d and %d steps", seed, first.Stats.Steps, second.Stats.Steps)
		}
	}
}

// quickBudget is the largest budget of the mutations that the tests run; `make
// sim/mutations` runs all.
const quickBudget = 50

// If the simulation did not find a mutation, its checks would prove nothing about
// the correct protocol.
func TestFaultsAreFound(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, m := range Mutations() {
		if names[m.Name] || m.Budget == 0 {
			t.Errorf("%s: the name is not unique, or there is no budget", m.Name)
		}
		names[m.Name] = true
		if m.Budget > quickBudget {
			continue
		}
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			if found, played := m.Find(m.Budget); found == nil {
				t.Errorf("not found in %d seeds", played)
			}
		})
	}
}
