package observe

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.yaml.in/yaml/v4"
)

const (
	root      = "../.."
	rulesPath = root + "/deploy/helm/modelgateway/files/rules/alerts.yaml"
	// runbooks is the folder of the runbooks as the rules name it.
	runbooks = "docs/operations/runbooks/"
)

// A rule is an alert of the rule file.
type rule struct {
	Alert       string
	Expr        string
	For         string
	Labels      map[string]string
	Annotations map[string]string
}

// rules returns the alerts of the rule file in order.
func rules(t *testing.T) []rule {
	t.Helper()
	text, err := os.ReadFile(rulesPath)
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Groups []struct{ Rules []rule } }
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	var all []rule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) < 20 {
		t.Fatalf("found only %d alerts", len(all))
	}
	return all
}

// installed installs promtool and prometheus for this user if they are missing, and returns their folder.
var installed = sync.OnceValues(func() (string, error) {
	install := exec.Command(root + "/scripts/prometheus.sh")
	install.Stderr = os.Stderr
	dir, err := install.Output()
	if err != nil {
		return "", fmt.Errorf("install promtool: %w", err)
	}
	return strings.TrimSpace(string(dir)), nil
})

// promtool runs promtool and returns its output.
func promtool(t *testing.T, args ...string) ([]byte, error) {
	t.Helper()
	dir, err := installed()
	if err != nil {
		t.Fatal(err)
	}
	return exec.CommandContext(t.Context(), filepath.Join(dir, "promtool"), args...).CombinedOutput()
}

func TestPromtoolAcceptsTheRules(t *testing.T) {
	t.Parallel()
	if out, err := promtool(t, "check", "rules", "--lint=all", "--lint-fatal", rulesPath); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestAlertsHaveSeverityTextAndRunbook(t *testing.T) {
	t.Parallel()
	for _, r := range rules(t) {
		if s := r.Labels["severity"]; s != "page" && s != "warning" {
			t.Errorf("%s has the severity %q; want page or warning", r.Alert, s)
		}
		for _, name := range []string{"summary", "description"} {
			if text := r.Annotations[name]; !strings.HasSuffix(text, ".") || !strings.ContainsAny(text[:1], `ABCDEFGHIJKLMNOPQRSTUVWXYZ{"`) {
				t.Errorf("%s: the %s is no sentence: %q", r.Alert, name, text)
			}
		}
		if got, want := r.Annotations["runbook"], runbooks+r.Alert+".md"; got != want {
			t.Errorf("%s names %s; want %s", r.Alert, got, want)
		}
	}
}

// TestAlertsFireOnlyForTheirReason runs both histories of every alert through promtool, which names those that differ.
func TestAlertsFireOnlyForTheirReason(t *testing.T) {
	t.Parallel()
	byName := map[string]rule{}
	for _, r := range rules(t) {
		byName[r.Alert] = r
	}
	tested := map[string]bool{}
	var shared []*histories
	for _, test := range slices.Concat(alertTests, fleetAlertTests) {
		r, ok := byName[test.alert]
		if !ok {
			t.Fatalf("there is no alert %s", test.alert)
		}
		tested[test.alert] = true
		metrics := metricName.FindAllString(r.Expr, -1)
		i := slices.IndexFunc(shared, func(h *histories) bool { return h.isFree(metrics) })
		if i < 0 {
			i, shared = len(shared), append(shared, &histories{})
		}
		shared[i].add(&test, r, metrics)
	}
	var tests []object
	for _, h := range shared {
		tests = append(tests, h.objects()...)
	}
	for name := range byName {
		if !tested[name] {
			t.Errorf("%s has no test", name)
		}
	}
	file, err := filepath.Abs(rulesPath)
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(object{"rule_files": []string{file}, "evaluation_interval": "1m", "tests": tests})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "test.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := promtool(t, "test", "rules", path); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// Whoever closes a provider or a model knows that its calls fail. Each alert of a provider or route has a history with one that
// is closed beside one that is not. Money is no matter of calls: a loss of the hour before stays one.
func TestMaintenanceSilencesAlertsOfThatThingAlone(t *testing.T) {
	t.Parallel()
	ofAThing := regexp.MustCompile(`by \((provider|route)\b`)
	found := 0
	for _, r := range rules(t) {
		thing := ofAThing.FindStringSubmatch(r.Expr)
		if thing == nil || r.Alert == "MgwRouteLosesMoney" {
			continue
		}
		found++
		scope := `mgw_maintenance_active{scope="` + thing[1] + `"`
		hasHistory := slices.ContainsFunc(slices.Concat(alertTests, fleetAlertTests), func(test alertTest) bool {
			return test.alert == r.Alert && slices.ContainsFunc(test.series, func(h history) bool { return strings.HasPrefix(h.name, scope) })
		})
		if !strings.Contains(r.Expr, "unless on ("+thing[1]+") label_replace("+scope) || !hasHistory {
			t.Errorf("%s does not leave out each %s that is in maintenance, or has no test of that", r.Alert, thing[1])
		}
	}
	if found < 10 {
		t.Errorf("only %d alerts are of a provider or route", found)
	}
}

var metricName = regexp.MustCompile(`\b(?:mgw_[a-z_]+|up)\b`)

// histories are two histories in the format of promtool: one in which alerts fire, and one in which they do not. Promtool
// needs a database for each history, so alerts over different metrics share them.
type histories struct {
	metrics                      []string
	firing, quiet, fires, quiets []object
}

func (h *histories) isFree(metrics []string) bool {
	return !slices.ContainsFunc(metrics, func(m string) bool { return slices.Contains(h.metrics, m) })
}

func (h *histories) add(a *alertTest, r rule, metrics []string) {
	h.metrics = append(h.metrics, metrics...)
	expected := []object{}
	for _, f := range a.want {
		labels := map[string]string{"severity": r.Labels["severity"]}
		for label := range strings.SplitSeq(f.labels, ",") {
			if name, value, ok := strings.Cut(label, "="); ok {
				labels[name] = value
			}
		}
		expected = append(expected, object{"exp_labels": labels, "exp_annotations": object{
			"summary": r.Annotations["summary"], "description": f.description, "runbook": r.Annotations["runbook"],
		}})
	}
	for _, s := range a.series {
		h.firing = append(h.firing, object{"series": s.name, "values": s.firing})
		h.quiet = append(h.quiet, object{"series": s.name, "values": s.quiet})
	}
	h.fires = append(h.fires, object{"alertname": a.alert, "eval_time": a.at, "exp_alerts": expected})
	h.quiets = append(h.quiets, object{"alertname": a.alert, "eval_time": a.at, "exp_alerts": []object{}})
}

func (h *histories) objects() []object {
	return []object{
		{"name": "alerts fire", "interval": "1m", "input_series": h.firing, "alert_rule_test": h.fires},
		{"name": "alerts do not fire", "interval": "1m", "input_series": h.quiet, "alert_rule_test": h.quiets},
	}
}
