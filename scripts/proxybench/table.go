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

// NewTable returns an empty table. All other targets are compared with the first one.
func NewTable(targets ...string) *Table { return &Table{targets: targets} }

// Add adds the results of a scenario: for each target the rounds, all without failures, or none if the target has failed.
func (t *Table) Add(s Scenario, results [][]Result) { t.rows = append(t.rows, row{s, results}) }

// Write writes the table in Markdown, with the medians of the rounds.
func (t *Table) Write(out io.Writer) {
	fmt.Fprint(out, "| CPU time or memory |")
	for i, name := range t.targets {
		fmt.Fprintf(out, " %s |%s", name, compared(i, " × |"))
	}

	fmt.Fprint(out, "\n| --- |")
	for i := range t.targets {
		fmt.Fprintf(out, " --- |%s", compared(i, " --- |"))
	}

	fmt.Fprintln(out)
	for _, r := range t.rows {
		for _, f := range r.scenario.figures() {
			fmt.Fprintf(out, "| %s, %s |", r.scenario.Name, f.name)
			for i, results := range r.results {
				f.write(out, i, results, r.results[0])
			}
			fmt.Fprintln(out)
		}
		t.writeParts(out, &r)
	}
}

// compared returns the text of the column that compares the i-th target with the first one, which has none.
func compared(i int, text string) string {
	if i == 0 {
		return ""
	}
	return text
}

// write writes the cells of the i-th target, whose results are compared with those of the first one.
func (f *figure) write(out io.Writer, i int, results, first []Result) {
	if len(results) == 0 {
		fmt.Fprintf(out, " failed |%s", compared(i, " |"))
		return
	}

	value, reference := median(results, f.of), median(first, f.of)
	ratio := fmt.Sprintf("%.2f", value/reference)
	if f.unit == milliseconds {
		ratio += fmt.Sprintf(", %+.1f ms", value-reference) // what a client waits longer, whatever the machine's own part is
	}
	fmt.Fprintf(out, " %.1f %s |%s", value, f.unit, compared(i, " "+ratio+" |"))
}

// writeParts writes the CPU times of the parts of the target that has parts, and their sum.
func (t *Table) writeParts(out io.Writer, r *row) {
	measured := slices.IndexFunc(r.results, func(results []Result) bool { return len(results) > 0 && len(results[0].Parts) > 0 })
	if measured < 0 {
		return
	}

	results := r.results[measured]
	write := func(name string, of func(Result) float64) {
		fmt.Fprintf(out, "| %s, %s, per %s |", r.scenario.Name, name, r.scenario.Unit)
		for i := range t.targets {
			value := ""
			if i == measured {
				value = fmt.Sprintf(" %.1f µs", median(results, of))
			}
			fmt.Fprintf(out, "%s |%s", value, compared(i, " |"))
		}
		fmt.Fprintln(out)
	}

	for i, part := range results[0].Parts {
		write(part.Name, func(r Result) float64 { return microseconds(r.Parts[i].CPU) })
	}
	write("all other parts", func(r Result) (sum float64) {
		for _, part := range r.Parts {
			sum += microseconds(part.CPU)
		}
		return sum
	})
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func inMilliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// milliseconds is the unit of latencies.
const milliseconds = "ms"

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
		all = append(all, figure{"p50 of the events", milliseconds, func(r Result) float64 { return inMilliseconds(r.P50) }})
	}
	if s.Rate > 0 || s.Paced {
		all = append(all, figure{"p99", milliseconds, func(r Result) float64 { return inMilliseconds(r.P99) }})
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
