package diagnosis

import (
	"fmt"
	"io"
)

// Print writes findings as text for people: the problems with their consequence and advice, then the number of checks that
// found none, or with all these checks, too.
func Print(out io.Writer, findings []Finding, all bool) {
	passed := map[string]int{}
	var areas []string
	for _, f := range findings {
		if f.Status == OK {
			if passed[f.Area]++; passed[f.Area] == 1 {
				areas = append(areas, f.Area)
			}
		}

		if f.Status == OK && !all {
			continue
		}

		name := f.Area + " " + f.Check
		if f.Subject != "" {
			name += " " + f.Subject
		}

		fmt.Fprintf(out, "%-7s  %s: %s\n", f.Status, name, f.Detail)
		if f.Meaning != "" {
			fmt.Fprintf(out, "         %s\n", f.Meaning)
		}
		if f.Advice != "" {
			fmt.Fprintf(out, "         → %s\n", f.Advice)
		}
	}

	if !all {
		for _, area := range areas {
			fmt.Fprintf(out, "%-7s  %s: %s passed\n", OK, area, number(passed[area], "check", "checks"))
		}
	}
}
