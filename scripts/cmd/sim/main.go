// Command sim plays the fault simulation of the lease protocol over many seeds,
// or one seed again with its trace.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"modelgateway/shared/lease/sim"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sim:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("sim", flag.ContinueOnError)
	seeds := flags.Uint64("seeds", 2000, "how many seeds to play")
	first := flags.Uint64("first", 1, "the first of them")
	seed := flags.Uint64("seed", 0, "play this seed alone")
	trace := flags.Bool("trace", false, "print the trace of the seed")
	mutations := flags.Bool("mutations", false, "play each seeded fault until it is found")
	fault := flags.String("fault", "", "of the seeded faults, only those whose name has this in it")
	budget := flags.Uint64("budget", 0, "seeds for each fault; zero takes its own")
	if err := flags.Parse(args); err != nil {
		return err //nolint:wrapcheck // it has been printed with the usage
	}
	switch {
	case *mutations:
		return mutate(*fault, *budget, out)
	case *seed > 0:
		r := sim.Run(*seed, sim.Correct(), *trace)
		fmt.Fprint(out, r.Trace)
		return report(out, r)
	}
	return play(*first, *seeds, out)
}

// report prints what became of one seed.
func report(out io.Writer, r sim.Result) error {
	if r.Violation == "" {
		fmt.Fprintf(out, "seed %d (%s): %d steps, %d admitted, %d refused, no violation\n", r.Seed, r.Profile.Name, r.Stats.Steps, r.Stats.Admitted, r.Stats.Refused)
		return nil
	}
	return fmt.Errorf("seed %d (%s): %s", r.Seed, r.Profile.Name, r.Violation)
}

// tail is how much of a trace is printed with a violation.
const tail = 6000

func play(first, count uint64, out io.Writer) error {
	begun := time.Now()
	var total sim.Stats
	var bad *sim.Result
	played := uint64(0)
	sim.Search(first, count, sim.Correct, func(r sim.Result) bool {
		played++
		total.Add(r.Stats)
		if r.Violation != "" {
			bad = &r
		}
		return bad == nil
	})
	took := time.Since(begun)
	fmt.Fprintf(out, "%d seeds in %s: %.0f seeds/s, %d steps, %.0f steps/s\n",
		played, took.Round(time.Millisecond), float64(played)/took.Seconds(), total.Steps, float64(total.Steps)/took.Seconds())
	fmt.Fprintf(out, "%d requests: %d admitted, %d refused; %d op messages\n", total.Requests, total.Admitted, total.Refused, total.Messages)
	var names []string
	for name := range total.Faults {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(out, "%12d  %s\n", total.Faults[name], name)
	}
	if bad == nil {
		return nil
	}
	again := sim.Run(bad.Seed, sim.Correct(), true)
	text := again.Trace
	if len(text) > tail {
		text = "…" + text[len(text)-tail:]
	}
	fmt.Fprint(out, text)
	return report(out, *bad)
}

func mutate(fault string, budget uint64, out io.Writer) error {
	missed, tried := 0, 0
	for _, m := range sim.Mutations() {
		if !strings.Contains(m.Name, fault) {
			continue
		}
		tried++
		limit := m.Budget
		if budget > 0 {
			limit = budget
		}
		begun := time.Now()
		found, played := m.Find(limit)
		if found == nil {
			missed++
			fmt.Fprintf(out, "NOT FOUND in %d seeds: %s\n", played, m.Name)
			continue
		}
		fmt.Fprintf(out, "%-70s %6d seeds %8s  seed %d, %s\n", m.Name, played, time.Since(begun).Round(time.Millisecond), found.Seed, found.Violation)
	}
	if missed > 0 {
		return fmt.Errorf("%d of %d seeded faults were not found", missed, tried)
	}
	if tried == 0 {
		return fmt.Errorf("no seeded fault has %q in its name", fault)
	}
	return nil
}
