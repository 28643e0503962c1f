package sim

import (
	"testing"
	"time"
)

// gate is how many worlds the tests play; `make sim` plays more.
const seedsInTest = 300

// regressions are seeds that once found a fault, by what it was.
var regressions = map[string]uint64{}

// TestInvariantsHold is the gate of every change of the protocol.
func TestInvariantsHold(t *testing.T) {
	t.Parallel()
	var total Stats
	begun := time.Now()
	Search(1, seedsInTest, Correct, func(r Result) bool {
		total.Add(r.Stats)
		if r.Violation != "" {
			t.Errorf("seed %d (%s): %s\nplay it again: make sim SEED=%d TRACE=1", r.Seed, r.Profile.Name, r.Violation, r.Seed)
		}
		return true
	})
	t.Logf("%d worlds in %s, %d steps, %d admitted, %d refused", seedsInTest, time.Since(begun), total.Steps, total.Admitted, total.Refused)
	for _, what := range []string{
		"admissions without a lease request", "recalls", "revocations confirmed", "sessions fenced", "processes stopped", "machines suspended", "streams deleted",
		"stream tails lost", "spools lost", "losses of commits declared", "crashes after commit", "commits without an answer", "gaps in pushed changes",
		"processes stalled", "sessions that pushes do not reach", "requests aborted", "altered duplicates", "sessions closed after expiry", "all proxies killed", "pools adjusted",
	} {
		if total.Faults[what] == 0 {
			t.Errorf("%s: none in %d worlds, so that nothing is shown about it", what, seedsInTest)
		}
	}
}

func TestRegressions(t *testing.T) {
	t.Parallel()
	for name, seed := range regressions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if r := Run(seed, Correct(), false); r.Violation != "" {
				t.Errorf("seed %d: %s", seed, r.Violation)
			}
		})
	}
}

// TestSeedsAreReproducible: one seed is one trace.
func TestSeedsAreReproducible(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		first, second := Run(seed, Correct(), true), Run(seed, Correct(), true)
		if first.Trace != second.Trace || first.Stats.Steps != second.Stats.Steps || first.Trace == "" {
			t.Errorf("seed %d played twice differs: %d and %d steps", seed, first.Stats.Steps, second.Stats.Steps)
		}
	}
}

// quick is the largest budget that the tests give a seeded fault; `make
// sim/mutations` gives each its own.
const quickBudget = 100

// TestFaultsAreFound: a checker that finds nothing proves nothing.
func TestFaultsAreFound(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, m := range Mutations() {
		if names[m.Name] || m.Budget == 0 {
			t.Errorf("%s: twice, or without a budget", m.Name)
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
