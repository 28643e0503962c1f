package proxybench

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// Table gathers the results of scenarios by target.
type Table struct {
	targets []string
	rows    []row
}

type row struct {
	scenario Scenario
	results  [][]Result // by target, by round
}

// NewTable returns an empty table; the first target is what the others are held
// against.
func NewTable(targets ...string) *Table { return &Table{targets: targets} }

// Add takes in the rounds of a scenario, by target, each of them without a fault.
func (t *Table) Add(s Scenario, results [][]Result) { t.rows = append(t.rows, row{s, results}) }

// Write writes the table in Markdown, with medians.
func (t *Table) Write(out io.Writer) {
	fmt.Fprint(out, "| CPU time |")
	for _, name := range t.targets {
		fmt.Fprintf(out, " %s |", name)
	}
	fmt.Fprint(out, " × |\n| --- |")
	for range len(t.targets) + 1 {
		fmt.Fprint(out, " --- |")
	}
	fmt.Fprintln(out)
	for _, r := range t.rows {
		fmt.Fprintf(out, "| %s, per %s |", r.scenario.Name, r.scenario.Unit)
		for _, results := range r.results {
			fmt.Fprintf(out, " %.1f µs |", float64(median(results))/float64(time.Microsecond))
		}
		last := r.results[len(r.results)-1]
		fmt.Fprintf(out, " %.2f |\n", float64(median(last))/float64(median(r.results[0])))
	}
}

// median is that of the CPU times.
func median(results []Result) time.Duration {
	var times []time.Duration
	for _, r := range results {
		times = append(times, r.CPU)
	}
	slices.Sort(times)
	return times[len(times)/2]
}
