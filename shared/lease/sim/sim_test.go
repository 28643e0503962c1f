package sim

import (
	"flag"
	"testing"
)

var (
	seed  = flag.Uint64("sim.seed", 0, "play this seed alone")
	trace = flag.Bool("sim.trace", false, "print the trace of the seed")
	seeds = flag.Uint64("sim.seeds", 300, "how many seeds to play")
)

func TestSeeds(t *testing.T) {
	if *seed > 0 {
		r := Run(*seed, Correct(), *trace)
		t.Logf("%s", r.Trace)
		if r.Violation != "" {
			t.Fatalf("seed %d (%s): %s", *seed, r.Profile.Name, r.Violation)
		}
		return
	}
	var total Stats
	bad := 0
	for s := range *seeds {
		r := Run(s, Correct(), false)
		total.Add(r.Stats)
		if r.Violation != "" {
			t.Errorf("seed %d (%s): %s", s, r.Profile.Name, r.Violation)
			if bad++; bad > 20 {
				break
			}
		}
	}
	t.Logf("%+v", total)
}
