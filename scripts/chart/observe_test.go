package chart

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
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

func TestRulesAreRenderedAsInTheirFile(t *testing.T) {
	t.Parallel()
	if got := renderObservers(t, "PrometheusRule"); len(got) > 0 {
		t.Errorf("rendered %v by default", got)
	}
	text, err := os.ReadFile(chartDir + "/files/rules/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for url, folder := range map[string]string{"": "docs/operations/runbooks/", "https://docs.example.com/runbooks": "https://docs.example.com/runbooks/"} {
		got := renderObservers(t, "PrometheusRule", "--set", "prometheusRule.enabled=true,prometheusRule.labels.release=prometheus", "--set", "prometheusRule.runbookURL="+url)
		if len(got) != 1 || got[0].Metadata.Labels["release"] != "prometheus" {
			t.Fatalf("rendered %v; want one with the label", got)
		}
		var want map[string]any
		if err := yaml.Unmarshal([]byte(strings.ReplaceAll(string(text), "runbook_url: docs/operations/runbooks/", "runbook_url: "+folder)), &want); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got[0].Spec, want) {
			t.Errorf("with the URL %q the rules are\n%v\nwant\n%v", url, got[0].Spec, want)
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
