package observe

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

var update = flag.Bool("update", false, "write the files of the dashboards")

const dashboardsDir = root + "/deploy/helm/modelgateway/files/dashboards"

// panels returns the panels of all dashboards with the names of their dashboards.
func panels() map[string]Panel {
	all := map[string]Panel{}
	for _, d := range Dashboards() {
		for _, row := range d.Rows {
			for _, p := range row.Panels {
				all[d.Title+" / "+p.Title] = p
			}
		}
	}
	return all
}

func TestDashboardFilesAreUpToDate(t *testing.T) {
	t.Parallel()
	wanted := map[string][]byte{}
	for _, d := range Dashboards() {
		text, err := d.JSON()
		if err != nil {
			t.Fatal(err)
		}
		wanted[d.UID+".json"] = text
	}
	stored, err := filepath.Glob(dashboardsDir + "/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stored {
		if wanted[filepath.Base(path)] == nil {
			t.Errorf("%s belongs to no dashboard", path)
		}
	}
	for name, want := range wanted {
		path := filepath.Join(dashboardsDir, name)
		got, err := os.ReadFile(path)
		if *update && !bytes.Equal(got, want) {
			err = os.WriteFile(path, want, 0o644)
			got = want
		}
		if err != nil {
			t.Error(err)
		} else if !bytes.Equal(got, want) {
			t.Errorf("%s is not up to date: run make generate", name)
		}
	}
}

// TestQueriesParse has promtool parse each query of the dashboards and runbooks as the expression of a recording rule.
func TestQueriesParse(t *testing.T) {
	t.Parallel()
	type recording struct {
		Record string            `yaml:"record"`
		Expr   string            `yaml:"expr"`
		Labels map[string]string `yaml:"labels"`
	}
	var all []recording
	for name, p := range panels() {
		for i, q := range p.Queries {
			all = append(all, recording{"x:y", strings.ReplaceAll(ofRelease(q.Expr), interval, "2m"), map[string]string{"query": fmt.Sprintf("%s %d", name, i)}})
		}
	}
	for _, query := range runbookQueries(t) {
		all = append(all, recording{"x:y", query, map[string]string{"query": query}})
	}
	if len(all) < 150 {
		t.Fatalf("found only %d queries", len(all))
	}
	text, err := yaml.Marshal(object{"groups": []object{{"name": "dashboards", "rules": all}}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := promtool(t, "check", "rules", path); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// A Prometheus may have several installations: each sample of a dashboard is of the chosen namespaces and releases.
func TestQueriesAreOfTheChosenRelease(t *testing.T) {
	t.Parallel()
	sample := regexp.MustCompile(`\b(?:mgw|go|process)_[a-z0-9_]+|\bup\b`)
	matched := regexp.MustCompile(`^\{namespace=~"\$namespace",app_kubernetes_io_instance=~"\$release"[,}]`)
	for name, p := range panels() {
		for _, q := range p.Queries {
			expr := ofRelease(q.Expr)
			for _, at := range sample.FindAllStringIndex(expr, -1) {
				if !matched.MatchString(expr[at[1]:]) {
					t.Errorf("%s: %s is of every release in %s", name, expr[at[0]:at[1]], expr)
				}
			}
			if strings.Contains(expr, ",}") || strings.Contains(expr, "{{") {
				t.Errorf("%s: %s", name, expr)
			}
		}
	}
}

// A metric that is in no alert, dashboard or runbook is seen by nobody.
func TestEachMetricIsLookedAt(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(root + "/docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var shown strings.Builder
	for _, p := range panels() {
		for _, q := range p.Queries {
			shown.WriteString(q.Expr + "\n")
		}
	}
	for _, r := range rules(t) {
		shown.WriteString(r.Expr + "\n")
	}
	for _, runbook := range runbookFiles(t) {
		shown.WriteString(runbook)
	}
	names := regexp.MustCompile("(?m)^\\| `(mgw_[a-z0-9_]+)`").FindAllStringSubmatch(string(text), -1)
	if len(names) < 100 {
		t.Fatalf("found only %d metrics", len(names))
	}
	for _, name := range names {
		if !strings.Contains(shown.String(), name[1]) {
			t.Errorf("%s is in no alert, dashboard or runbook", name[1])
		}
	}
}

func TestPanelsAreDescribed(t *testing.T) {
	t.Parallel()
	units := []string{"", "s", "reqps", "percentunit", "bytes"}
	uids := map[string]bool{}
	for _, d := range Dashboards() {
		if uids[d.UID] || !strings.HasPrefix(d.UID, "mgw-") || len(d.UID) > 40 {
			t.Errorf("%s has the id %q; want one of its own that begins with mgw-", d.Title, d.UID)
		}
		uids[d.UID] = true
	}
	if len(uids) != 7 {
		t.Errorf("there are %d dashboards; want 7", len(uids))
	}
	total := 0
	for _, d := range Dashboards() {
		for _, row := range d.Rows {
			total += len(row.Panels)
		}
	}
	if len(panels()) != total {
		t.Errorf("%d panels have %d different titles", total, len(panels()))
	}
	for name, p := range panels() {
		if !strings.HasSuffix(p.Description, ".") || !slices.Contains(units, p.Unit) || len(p.Queries) == 0 {
			t.Errorf("%s: description %q, unit %q, %d queries", name, p.Description, p.Unit, len(p.Queries))
		}
		for _, q := range p.Queries {
			if q.Legend == "" && !p.Table {
				t.Errorf("%s: %s has no legend", name, q.Expr)
			}
		}
	}
}

// TestQueriesNameMetricsOfTheReference: each metric of the gateway that a dashboard or an alert names is in docs/metrics.md.
func TestQueriesNameMetricsOfTheReference(t *testing.T) {
	t.Parallel()
	reference, err := os.ReadFile(root + "/docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	exprs := map[string][]string{}
	for name, p := range panels() {
		for _, q := range p.Queries {
			exprs[name] = append(exprs[name], q.Expr)
		}
	}
	for _, r := range rules(t) {
		exprs[r.Alert] = append(exprs[r.Alert], r.Expr)
	}
	metric := regexp.MustCompile(`\bmgw_[a-z_]+`)
	for name, list := range exprs {
		for _, m := range metric.FindAllString(strings.Join(list, " "), -1) {
			if !bytes.Contains(reference, []byte("`"+strings.TrimSuffix(m, "_bucket")+"`")) {
				t.Errorf("%s names %s, which is no metric", name, m)
			}
		}
	}
}
