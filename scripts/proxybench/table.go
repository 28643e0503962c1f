package proxybench

import (
	"fmt"
	"io"
	"slices"
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
		what, unit, each := "per "+r.scenario.Unit, "µs", func(r Result) float64 { return float64(r.CPU) / float64(time.Microsecond) }
		if r.scenario.Memory {
			what, unit, each = "peak memory", "MiB", func(r Result) float64 { return float64(r.Peak) / (1 << 20) }
		}
		fmt.Fprintf(out, "| %s, %s |", r.scenario.Name, what)
		for _, results := range r.results {
			fmt.Fprintf(out, " %.1f %s |", median(results, each), unit)
		}
		last := r.results[len(r.results)-1]
		fmt.Fprintf(out, " %.2f |\n", median(last, each)/median(r.results[0], each))
	}
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
