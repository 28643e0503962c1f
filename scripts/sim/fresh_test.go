package sim

import "testing"

// freshSeeds is how many worlds of freshness the tests run. They are much smaller
// than the others.
const freshSeeds = 1000

func TestFreshnessHolds(t *testing.T) {
	t.Parallel()
	var total Stats
	Search(1, freshSeeds, func() *Rules { return CorrectIn(freshness) }, func(r Result) bool {
		total.Add(r.Stats)
		if r.Violation != "" {
			t.Errorf("seed %d: %s\nrun it again: go run ./scripts/cmd/sim -profile freshness -seed %d -trace", r.Seed, r.Violation, r.Seed)
		}
		return true
	})
	t.Logf("%d worlds, %d steps, %d admitted, %v", freshSeeds, total.Steps, total.Admitted, total.Faults)
	for _, what := range []string{
		"no quorum", "proxies on the minority", "proxies on a server with an old store", "acknowledged messages lost", "streams created again", "proxies killed",
		"machines suspended", "Postgres away", "control planes away", "requests admitted in an outage", "direct revocations confirmed", "changes appended again",
		"direct revocations lost with the stream", "sessions ended",
	} {
		if total.Faults[what] == 0 {
			t.Errorf("no seed has %s, so they are not tested", what)
		}
	}
}

func TestFreshSeedsAreReproducible(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		first, second := Run(seed, CorrectIn(freshness), true), Run(seed, CorrectIn(freshness), true)
		if first.Trace != second.Trace || first.Trace == "" {
			t.Errorf("two runs of seed %d differ, or have no trace", seed)
		}
	}
}
