package chart

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// An observer is a PrometheusRule, or a ConfigMap with a dashboard.
type observer struct {
	Kind     string
	Metadata struct {
		Name        string
		Labels      map[string]string
		Annotations map[string]string
	}
	Spec map[string]any
	Data map[string]string
}

// renderObservers returns the objects of a kind that are rendered for monitoring.
func renderObservers(t *testing.T, kind string, args ...string) []observer {
	t.Helper()
	decoder := yaml.NewDecoder(bytes.NewReader(render(t, "defaults", args...)))
	var found []observer
	for {
		var o observer
		err := decoder.Decode(&o)
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		if o.Kind == kind && o.Metadata.Labels["app.kubernetes.io/component"] == "monitoring" {
			found = append(found, o)
		}
	}
}

// runbookOf matches the place of the runbook of an alert: the indent, and the name of the file.
var runbookOf = regexp.MustCompile(`(?m)^( +)runbook: docs/operations/runbooks/(\w+\.md)$`)

func TestRulesAreRenderedAsInTheirFile(t *testing.T) {
	t.Parallel()
	if got := renderObservers(t, "PrometheusRule"); len(got) > 0 {
		t.Errorf("rendered %v by default", got)
	}
	text, err := os.ReadFile(chartDir + "/files/rules/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{"", "https://docs.example.com/runbooks"} {
		got := renderObservers(t, "PrometheusRule", "--set", "prometheusRule.enabled=true,prometheusRule.labels.release=prometheus", "--set", "prometheusRule.runbookURL="+url)
		if len(got) != 1 || got[0].Metadata.Labels["release"] != "prometheus" {
			t.Fatalf("rendered %v; want one with the label", got)
		}
		var want map[string]any
		// A path is no link: runbook_url, which tools show as one, is there only with an address.
		withLinks := string(text)
		if url != "" {
			withLinks = runbookOf.ReplaceAllString(withLinks, "$0\n${1}runbook_url: "+url+"/$2")
		}
		if err := yaml.Unmarshal([]byte(withLinks), &want); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got[0].Spec, want) {
			t.Errorf("with the URL %q the rules are\n%v\nwant\n%v", url, got[0].Spec, want)
		}
	}
}

// samplesOf matches the names of metrics in an expression.
var samplesOf = regexp.MustCompile(`\b(?:mgw_[a-z0-9_]+|up\b)`)

// One Prometheus may have several installations, and other products: an alert concerns the samples of its release alone.
func TestAlertsConcernTheirRelease(t *testing.T) {
	t.Parallel()
	rendered := renderObservers(t, "PrometheusRule", "--set", "prometheusRule.enabled=true,serviceMonitor.enabled=true,prometheusRule.selector.cluster=eu")
	if len(rendered) != 1 {
		t.Fatalf("rendered %v", rendered)
	}
	const matchers = `{app_kubernetes_io_instance="release",cluster="eu",namespace="space"`
	for _, r := range alertsOf(t, &rendered[0]) {
		for _, at := range samplesOf.FindAllStringIndex(r.Expr, -1) {
			if rest := r.Expr[at[1]:]; !strings.HasPrefix(rest, matchers+",") && !strings.HasPrefix(rest, matchers+"}") {
				t.Errorf("%s: %s is of every release in %s", r.Alert, r.Expr[at[0]:at[1]], r.Expr)
			}
		}
	}

	dir := t.TempDir()
	text, err := yaml.Marshal(rendered[0].Spec)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	history := fmt.Sprintf(`
rule_files: [%s]
tests:
  - interval: 1m
    input_series:
      - {series: 'up{job="dataplane",app_kubernetes_io_instance="release",namespace="space",cluster="eu"}', values: "0+0x5"}
      - {series: 'up{job="dataplane",app_kubernetes_io_instance="staging",namespace="space",cluster="eu"}', values: "1+0x5"}
      - {series: 'up{job="kuma-controlplane",namespace="kuma",cluster="eu"}', values: "1+0x5"}
    promql_expr_test:
      - expr: 'count by (plane) (ALERTS{alertname="MgwPlaneAbsent",alertstate="firing"})'
        eval_time: 4m
        exp_samples:
          - {labels: '{plane="control plane"}', value: 1}
          - {labels: '{plane="data plane"}', value: 1}
`, write("rules.yaml", text))
	dirOf, err := output(exec.CommandContext(t.Context(), root+"/scripts/prometheus.sh"))
	if err != nil {
		t.Fatal(err)
	}
	promtool := filepath.Join(strings.TrimSpace(string(dirOf)), "promtool")
	if out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", write("test.yaml", []byte(history))).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// An alertRule is an alert of a PrometheusRule.
type alertRule struct{ Alert, Expr string }

func alertsOf(t *testing.T, o *observer) []alertRule {
	t.Helper()
	text, err := yaml.Marshal(o.Spec)
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Groups []struct{ Rules []alertRule } }
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	var all []alertRule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// Each threshold of the list stands in the expression of its alert, and a value takes its place.
func TestThresholdsAndAlertsCanBeChanged(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(chartDir + "/files/rules/thresholds.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var known map[string]map[string]string
	if err := yaml.Unmarshal(text, &known); err != nil {
		t.Fatal(err)
	}
	values := map[string]map[string]float64{}
	for alert, thresholds := range known {
		values[alert] = map[string]float64{}
		i := 0.0
		for name := range thresholds {
			i++
			values[alert][name] = 1234.5 + i
		}
	}
	text, err = yaml.Marshal(map[string]any{"prometheusRule": map[string]any{"enabled": true, "thresholds": values, "disabled": []string{"MgwFirstToken"}}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, r := range alertsOf(t, &renderObservers(t, "PrometheusRule", "--values", path)[0]) {
		found[r.Alert] = r.Expr
	}
	if _, kept := found["MgwFirstToken"]; kept || len(found) < 30 {
		t.Errorf("got %d alerts, MgwFirstToken: %v", len(found), kept)
	}
	for alert, thresholds := range values {
		for name, value := range thresholds {
			if alert != "MgwFirstToken" && !strings.Contains(found[alert], fmt.Sprintf(" %v", value)) {
				t.Errorf("%s.%s does not change %s", alert, name, found[alert])
			}
		}
	}
	for _, set := range []string{"prometheusRule.disabled={MgwNone}", "prometheusRule.thresholds.MgwServerErrors.none=1", "prometheusRule.thresholds.MgwNone.share=1"} {
		args := withValues("defaults", "template", "release", chartDir, "--set", "prometheusRule.enabled=true", "--set", set)
		if out, err := output(tool(t, "helm", args...)); err == nil || !strings.Contains(err.Error(), "prometheusRule.") {
			t.Errorf("%s: rendered %s, %v; want a refusal", set, out, err)
		}
	}
}

func TestDashboardsAreRenderedAsInTheirFiles(t *testing.T) {
	t.Parallel()
	if got := renderObservers(t, "ConfigMap"); len(got) > 0 {
		t.Errorf("rendered %v by default", got)
	}
	files, err := filepath.Glob(chartDir + "/files/dashboards/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("dashboards: %v, %v", files, err)
	}
	got := renderObservers(t, "ConfigMap", "--set", "dashboards.enabled=true,dashboards.annotations.grafana_folder=Gateway")
	if len(got) != len(files) {
		t.Fatalf("rendered %d dashboards; want %d", len(got), len(files))
	}
	for i, path := range files {
		o := got[i]
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if rendered := o.Data[filepath.Base(path)]; rendered != strings.TrimSpace(string(text)) || !json.Valid([]byte(rendered)) {
			t.Errorf("%s differs from its file:\n%s", o.Metadata.Name, rendered)
		}
		if o.Metadata.Labels["grafana_dashboard"] != "1" || o.Metadata.Annotations["grafana_folder"] != "Gateway" {
			t.Errorf("%s has the labels %v and annotations %v", o.Metadata.Name, o.Metadata.Labels, o.Metadata.Annotations)
		}
	}
}

// TestJobsHaveTheNamesOfTheRules: the rules and dashboards select the jobs of the two planes by the ends of their names.
func TestJobsHaveTheNamesOfTheRules(t *testing.T) {
	t.Parallel()
	decoder := yaml.NewDecoder(bytes.NewReader(render(t, "defaults", "--set", "serviceMonitor.enabled=true")))
	type object struct {
		Kind     string
		Metadata struct{ Labels map[string]string }
		Spec     struct {
			JobLabel string `yaml:"jobLabel"`
			Selector selector
		}
	}
	var monitors, services []object
	for {
		var o object
		err := decoder.Decode(&o)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch o.Kind {
		case "ServiceMonitor":
			monitors = append(monitors, o)
		case "Service":
			services = append(services, o)
		}
	}
	var jobs []string
	for _, m := range monitors {
		for _, s := range services {
			if m.Spec.Selector.matches(s.Metadata.Labels) {
				jobs = append(jobs, s.Metadata.Labels[m.Spec.JobLabel])
			}
		}
	}
	if want := []string{"controlplane", "dataplane"}; !slices.Equal(jobs, want) {
		t.Errorf("the jobs are %q; want %q", jobs, want)
	}
}
