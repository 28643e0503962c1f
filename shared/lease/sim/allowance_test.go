package sim

import "testing"

// allowanceSeeds is how many worlds of each profile with outage allowances the tests
// run.
const allowanceSeeds = 30

func TestInvariantsHoldWithOutageAllowances(t *testing.T) {
	t.Parallel()
	var total Stats
	for _, p := range allowanceProfiles {
		Search(1, allowanceSeeds, func() *Rules { return CorrectIn(p.name) }, func(r Result) bool {
			total.Add(r.Stats)
			if r.Violation != "" {
				t.Errorf("seed %d: %s\nrun it again: go run ./scripts/cmd/sim -profile %q -seed %d -trace", r.Seed, r.Violation, p.name, r.Seed)
			}
			return true
		})
	}
	t.Logf("%d steps, %d admitted, %d refused, %v", total.Steps, total.Admitted, total.Refused, total.Faults)
	for _, what := range []string{
		"requests granted under the outage allowance", "accounts that need the outage allowance", "Postgres away", "bus away", "replicas stopped",
		"replicas killed and not started", "losses of commits declared",
		"requests under the outage allowance found after a restart",
	} {
		if total.Faults[what] == 0 {
			t.Errorf("no seed has %s, so they are not tested", what)
		}
	}
}
