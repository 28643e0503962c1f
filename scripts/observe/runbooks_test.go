package observe

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// runbookFiles returns the text of the runbooks by the names of their files.
func runbookFiles(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, runbooks, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		found[filepath.Base(path)] = string(text)
	}
	return found
}

// TestEachAlertHasARunbook compares the alerts with the runbooks and their list, in both directions.
func TestEachAlertHasARunbook(t *testing.T) {
	t.Parallel()
	files := runbookFiles(t)
	list := files["README.md"]
	delete(files, "README.md")
	var table strings.Builder
	for _, r := range rules(t) {
		fmt.Fprintf(&table, "| [%[1]s](%[1]s.md) | %s | %s |\n", r.Alert, r.Labels["severity"], r.Annotations["summary"])
		text, exists := files[r.Alert+".md"]
		if !exists {
			t.Errorf("%s has no runbook", r.Alert)
			continue
		}
		delete(files, r.Alert+".md")
		parts := []string{"# " + r.Alert + "\n", "\n**Customers**", "\n## First look\n", "\n    gwctl ", "\n## End it\n", "\n## Do not\n"}
		from := 0
		for _, part := range parts {
			at := strings.Index(text[from:], part)
			if at < 0 {
				t.Errorf("the runbook of %s lacks %q after its first %d characters", r.Alert, part, from)
				break
			}
			if part != "\n    gwctl " { // it may stand before or after the queries
				from += at
			}
		}
	}
	if _, rows, _ := strings.Cut(list, "| --- | --- | --- |\n"); rows != table.String() {
		t.Errorf("the list of alerts in README.md is\n%s\nwant\n%s", rows, table.String())
	}
	for name, text := range files {
		if strings.HasPrefix(name, "Mgw") {
			t.Errorf("%s belongs to no alert", name)
		}
		if !strings.Contains(list, "("+name+")") || !strings.Contains(text, "**Do not**") {
			t.Errorf("%s is not in README.md, or does not say what not to do", name)
		}
	}
	if len(files) < 7 {
		t.Errorf("there are only %d further runbooks", len(files))
	}
}

// runbookQueries returns the queries of the runbooks: lines of code that are no commands, and code with a metric in a table.
func runbookQueries(t *testing.T) []string {
	t.Helper()
	line := regexp.MustCompile("(?m)^ {4,}(\\S.*)$|`((?:sum|max|min|histogram_quantile)\\b[^`]*)`")
	var found []string
	for _, text := range runbookFiles(t) {
		for _, m := range line.FindAllStringSubmatch(text, -1) {
			query := m[1] + m[2]
			if !strings.HasPrefix(query, "gwctl ") && !strings.HasPrefix(query, "kubectl ") {
				found = append(found, query)
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// TestLogMessagesOfRunbooksExist: a text that a runbook quotes from a log is in the code of a plane.
func TestLogMessagesOfRunbooksExist(t *testing.T) {
	t.Parallel()
	var code strings.Builder
	for _, plane := range []string{"dataplane", "controlplane"} {
		err := filepath.WalkDir(filepath.Join(root, plane, "internal"), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			code.Write(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	sentence, quoted := regexp.MustCompile(`\blogs?\b[^.|]*`), regexp.MustCompile("`([a-z][a-z' ]+)`")
	found := 0
	for name, text := range runbookFiles(t) {
		for _, s := range sentence.FindAllString(text, -1) {
			for _, m := range quoted.FindAllStringSubmatch(s, -1) {
				found++
				if message := strings.Join(strings.Fields(m[1]), " "); !strings.Contains(code.String(), `"`+message) {
					t.Errorf("%s: no log has %q", name, message)
				}
			}
		}
	}
	if found < 6 {
		t.Errorf("found only %d messages", found)
	}
}

// TestCodesOfRunbooksExist: a table of a runbook that tells what to look at by code has codes that clients can get.
func TestCodesOfRunbooksExist(t *testing.T) {
	t.Parallel()
	code, err := os.ReadFile(filepath.Join(root, "shared", "apierr", "apierr.go"))
	if err != nil {
		t.Fatal(err)
	}
	table, row := regexp.MustCompile(`(?m)^\| code \|.*\n((?:\|.*\n)+)`), regexp.MustCompile("(?m)^\\| `?([a-z_]+)")
	found := 0
	for name, text := range runbookFiles(t) {
		for _, rows := range table.FindAllStringSubmatch(text, -1) {
			for _, m := range row.FindAllStringSubmatch(rows[1], -1) {
				found++
				if m[1] != "none" && !strings.Contains(string(code), `Code = "`+m[1]+`"`) {
					t.Errorf("%s: no client gets the code %q", name, m[1])
				}
			}
		}
	}
	if found < 3 {
		t.Errorf("found only %d codes", found)
	}
}
