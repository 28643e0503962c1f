package proxybench

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Table collects the results of scenarios by target.
type Table struct {
	targets []string
	rows    []row
}

type row struct {
	scenario Scenario
	results  [][]Result // by target, by round
}

// NewTable returns an empty table. The ratios of the last target are relative to the first
// one.
func NewTable(targets ...string) *Table { return &Table{targets: targets} }

// Add adds the results of a scenario: for each target the rounds, all without failures.
func (t *Table) Add(s Scenario, results [][]Result) { t.rows = append(t.rows, row{s, results}) }

// Write writes the table in Markdown, with the medians of the rounds.
func (t *Table) Write(out io.Writer) {
	fmt.Fprint(out, "| CPU time or memory |")
	for _, name := range t.targets {
		fmt.Fprintf(out, " %s |", name)
	}

	fmt.Fprint(out, " × |\n| --- |")
	for range len(t.targets) + 1 {
		fmt.Fprint(out, " --- |")
	}

	fmt.Fprintln(out)
	for _, r := range t.rows {
		for _, f := range r.scenario.figures() {
			fmt.Fprintf(out, "| %s, %s |", r.scenario.Name, f.name)
			for _, results := range r.results {
				fmt.Fprintf(out, " %.1f %s |", median(results, f.of), f.unit)
			}
			fmt.Fprintf(out, " %.2f |\n", median(r.results[len(r.results)-1], f.of)/median(r.results[0], f.of))
		}
		t.writeParts(out, &r)
	}
}

// writeParts writes the CPU time of the parts of the last target, and its sum.
func (t *Table) writeParts(out io.Writer, r *row) {
	write := func(name string, of func(Result) float64) {
		fmt.Fprintf(out, "| %s, %s, per %s |%s %.1f µs | |\n", r.scenario.Name, name, r.scenario.Unit,
			strings.Repeat(" |", len(t.targets)-1), median(r.results[len(r.results)-1], of))
	}

	results := r.results[len(r.results)-1]
	parts := results[0].Parts
	for i := range parts {
		write(parts[i].Name, func(r Result) float64 { return microseconds(r.Parts[i].CPU) })
	}

	if len(parts) > 0 {
		write("all other parts", func(r Result) (sum float64) {
			for _, part := range r.Parts {
				sum += microseconds(part.CPU)
			}
			return sum
		})
	}
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// figure is one figure of a result.
type figure struct {
	name, unit string
	of         func(Result) float64
}

// figures returns the figures of a scenario that the table has.
func (s *Scenario) figures() (all []figure) {
	if !s.Memory {
		all = append(all, figure{"per " + s.Unit, "µs", func(r Result) float64 { return microseconds(r.CPU) }})
	}
	if s.Paced {
		all = append(all, figure{"p50 of the events", "ms", func(r Result) float64 { return float64(r.P50) / float64(time.Millisecond) }})
	}
	if s.Rate > 0 || s.Paced {
		all = append(all, figure{"p99", "ms", func(r Result) float64 { return float64(r.P99) / float64(time.Millisecond) }})
	}
	if s.Memory || s.Peak {
		all = append(all, figure{"peak memory", "MiB", func(r Result) float64 { return float64(r.Peak) / (1 << 20) }})
	}
	return all
}

// median returns the median of a figure of the results.
func median(results []Result, figure func(Result) float64) float64 {
	var all []float64
	for _, r := range results {
		all = append(all, figure(r))
	}
	slices.Sort(all)
	return all[len(all)/2]
}
