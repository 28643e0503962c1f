package docs

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the references of metrics and log lines")

const metricsPath = "docs/metrics.md"

// metric is a metric as the code declares it.
type metric struct {
	name, help string
	labels     []string
}

// metricsOf returns the metrics that the packages of a plane declare, sorted by
// name: in the options of a constructor, or as the name and the help text that
// are the first arguments of a call.
func metricsOf(t *testing.T, plane string) []metric {
	t.Helper()
	found := map[string]metric{}
	for _, path := range files(t, ".go") {
		if !strings.HasPrefix(path, plane+"/") || strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for n := range ast.Preorder(file) {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				continue
			}
			if m := metricIn(call); m.name != "" && m.help != "" {
				if _, twice := found[m.name]; twice {
					t.Errorf("%s: %s is declared twice", path, m.name)
				}
				found[m.name] = m
			}
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b metric) int { return strings.Compare(a.name, b.name) })
}

// metricIn returns the metric that a call declares, or an empty one.
func metricIn(call *ast.CallExpr) metric {
	var m metric
	var texts []string
	for _, arg := range call.Args {
		literal, isLiteral := arg.(*ast.CompositeLit)
		text := textOf(arg)
		switch {
		case text != "":
			texts = append(texts, text)
		case isLiteral && len(literal.Elts) > 0 && textOf(literal.Elts[0]) != "": // []string{"label"}
			for _, e := range literal.Elts {
				m.labels = append(m.labels, textOf(e))
			}
		case isLiteral: // prometheus.CounterOpts{Name: …, Help: …}
			members := membersOf(literal)
			m.name, m.help = textOf(members["Name"]), textOf(members["Help"])
			if fixed, ok := members["ConstLabels"].(*ast.CompositeLit); ok {
				m.labels = slices.Sorted(maps.Keys(membersOf(fixed)))
			}
		}
	}
	if m.name == "" && len(texts) >= 2 { // NewDesc("mgw_…", "…", …)
		m.name, m.help = texts[0], texts[1]
		m.labels = append(m.labels, texts[2:]...)
	}
	if !strings.HasPrefix(m.name, "mgw_") {
		return metric{}
	}
	return m
}

// membersOf returns the values of a literal by their keys.
func membersOf(literal *ast.CompositeLit) map[string]ast.Expr {
	members := map[string]ast.Expr{}
	for _, e := range literal.Elts {
		if pair, ok := e.(*ast.KeyValueExpr); ok {
			key := textOf(pair.Key)
			if name, ok := pair.Key.(*ast.Ident); ok {
				key = name.Name
			}
			members[key] = pair.Value
		}
	}
	return members
}

// textOf returns the value of a string literal or of several that are added, or
// an empty text.
func textOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		if e.Kind == token.STRING && err == nil {
			return text
		}
	case *ast.BinaryExpr:
		if left, right := textOf(e.X), textOf(e.Y); left != "" && right != "" {
			return left + right
		}
	}
	return ""
}

// TestMetricsReferenceIsUpToDate: docs/metrics.md lists the metrics that the code
// declares.
func TestMetricsReferenceIsUpToDate(t *testing.T) {
	t.Parallel()
	stored := read(t, metricsPath)
	want := stored
	for _, plane := range []string{"dataplane", "controlplane"} {
		metrics := metricsOf(t, plane)
		if len(metrics) < 10 {
			t.Errorf("found only %d metrics of the %s", len(metrics), plane)
		}
		var table strings.Builder
		table.WriteString("| metric | labels | meaning |\n| --- | --- | --- |\n")
		for _, m := range metrics {
			if !strings.HasSuffix(m.help, ".") {
				t.Errorf("%s: the help text is no sentence: %q", m.name, m.help)
			}
			fmt.Fprintf(&table, "| `%s` | %s | %s |\n", m.name, strings.Join(m.labels, ", "), m.help)
		}
		want = withSection(t, metricsPath, want, plane, table.String())
	}
	if want == stored {
		return
	}
	if !*update {
		t.Fatalf("%s is not up to date: run go test ./scripts/docs -run Reference -update", metricsPath)
	}
	if err := os.WriteFile(filepath.Join(root, metricsPath), []byte(want), 0o600); err != nil { // it exists and keeps its mode
		t.Fatal(err)
	}
}

// TestNamedMetricsExist: a metric or bucket that a document or the chart names is
// in the code.
func TestNamedMetricsExist(t *testing.T) {
	t.Parallel()
	var code strings.Builder
	for _, path := range files(t, ".go") {
		if !strings.HasSuffix(path, "_test.go") && !strings.HasPrefix(path, "scripts/") {
			code.WriteString(read(t, path))
		}
	}
	declared, name := code.String(), regexp.MustCompile(`\bmgw_[a-z][a-z_]+\b`)
	for _, path := range files(t, ".md", ".yaml") {
		if path == "CONTRIBUTING.md" { // adds a metric as an example
			continue
		}
		for _, m := range name.FindAllString(read(t, path), -1) {
			if !strings.Contains(declared, `"`+m+`"`) && !strings.Contains(declared, `"`+strings.TrimSuffix(m, "_bucket")+`"`) {
				t.Errorf("%s names %s, which no code declares", path, m)
			}
		}
	}
}
