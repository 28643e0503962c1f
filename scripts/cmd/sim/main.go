// Command sim runs the fault simulation of the lease protocol with many seeds, or
// one seed with its trace.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"modelgateway/scripts/sim"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sim:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("sim", flag.ContinueOnError)
	seeds := flags.Uint64("seeds", 2000, "number of seeds to run")
	first := flags.Uint64("first", 1, "first seed")
	seed := flags.Uint64("seed", 0, "run only this seed")
	trace := flags.Bool("trace", false, "print the trace of the seed given by -seed")
	profile := flags.String(
		"profile",
		"",
		"run every seed in this directed profile instead of its own; one of "+strings.Join(sim.Profiles(), ", "),
	)
	all := flags.Bool("all", false, "run the seeds once as they are and then in each directed profile")
	mutations := flags.Bool("mutations", false, "run each mutation of the protocol until the simulation finds it")
	fault := flags.String("fault", "", "run only mutations whose name contains this text")
	budget := flags.Uint64("budget", 0, "maximum number of seeds for each mutation; zero means the default of the mutation")
	if err := flags.Parse(args); err != nil {
		return err //nolint:wrapcheck // the flag package has printed it
	}
	if *profile != "" && !slices.Contains(sim.Profiles(), *profile) {
		return fmt.Errorf("there is no profile %q", *profile)
	}

	rules := func() *sim.Rules { return sim.CorrectIn(*profile) }
	switch {
	case *mutations:
		return mutate(*fault, *budget, out)
	case *seed > 0:
		r := sim.Run(*seed, rules(), *trace)
		fmt.Fprint(out, r.Trace)
		return report(out, r)
	}

	if err := search(*first, *seeds, rules, out); err != nil || !*all {
		return err
	}

	for _, name := range sim.Profiles() {
		fmt.Fprintf(out, "\nprofile %s\n", name)
		if err := search(*first, *seeds, func() *sim.Rules { return sim.CorrectIn(name) }, out); err != nil {
			return err
		}
	}

	return nil
}

// report prints the result of one seed, or returns its violation as an error.
func report(out io.Writer, r sim.Result) error {
	if r.Violation == "" {
		fmt.Fprintf(
			out,
			"seed %d (%s): %d steps, %d admitted, %d refused, no violation\n",
			r.Seed,
			r.Profile.Name,
			r.Stats.Steps,
			r.Stats.Admitted,
			r.Stats.Refused,
		)
		return nil
	}
	return fmt.Errorf("seed %d (%s): %s", r.Seed, r.Profile.Name, r.Violation)
}

// maxTrace is the length of the end of a trace that is printed with a violation, in bytes.
const maxTrace = 6000

// search runs seeds until one violates an invariant, and prints the statistics.
func search(first, count uint64, rules func() *sim.Rules, out io.Writer) error {
	start := time.Now()
	var total sim.Stats
	var bad *sim.Result
	seeds := uint64(0)
	sim.Search(first, count, rules, func(r sim.Result) bool {
		seeds++
		total.Add(r.Stats)
		if r.Violation != "" {
			bad = &r
		}
		return bad == nil
	})

	took := time.Since(start)
	fmt.Fprintf(out, "%d seeds in %s: %.0f seeds/s, %d steps, %.0f steps/s\n",
		seeds, took.Round(time.Millisecond), float64(seeds)/took.Seconds(), total.Steps, float64(total.Steps)/took.Seconds())

	fmt.Fprintf(
		out,
		"%d requests: %d admitted, %d refused; %d lease requests\n",
		total.Requests,
		total.Admitted,
		total.Refused,
		total.Messages,
	)
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

	again := sim.Run(bad.Seed, rules(), true)
	text := again.Trace
	if len(text) > maxTrace {
		text = "…" + text[len(text)-maxTrace:]
	}

	fmt.Fprint(out, text)
	return report(out, *bad)
}

// mutate runs mutations of the protocol, and returns an error unless all are found.
func mutate(fault string, budget uint64, out io.Writer) error {
	missed, count := 0, 0
	for _, m := range sim.Mutations() {
		if !strings.Contains(m.Name, fault) {
			continue
		}

		count++
		limit := m.Budget
		if budget > 0 {
			limit = budget
		}

		start := time.Now()
		found, seeds := m.Find(limit)
		if found == nil {
			missed++
			fmt.Fprintf(out, "NOT FOUND in %d seeds: %s\n", seeds, m.Name)
			continue
		}

		fmt.Fprintf(
			out,
			"%-70s %6d seeds %8s  seed %d, %s\n",
			m.Name,
			seeds,
			time.Since(start).Round(time.Millisecond),
			found.Seed,
			found.Violation,
		)
	}

	if missed > 0 {
		return fmt.Errorf("%d of %d mutations were not found", missed, count)
	}
	if count == 0 {
		return fmt.Errorf("no mutation has %q in its name", fault)
	}

	return nil
}
