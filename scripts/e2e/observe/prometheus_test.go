package observe

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"modelgateway/scripts/e2e/rig"
)

const root = "../../.."

// A server is a running Prometheus.
type server struct{ url string }

type object = map[string]any

// startPrometheus starts a Prometheus that scrapes all processes of the stack and evaluates the rules in a file, five times
// a second. The jobs have the names that the chart's ServiceMonitors give them.
func startPrometheus(t *testing.T, r *rig.Rig, rules string) *server {
	t.Helper()
	install := exec.CommandContext(t.Context(), root+"/scripts/prometheus.sh")
	install.Stderr = os.Stderr
	out, err := install.Output()
	if err != nil {
		t.Fatalf("install Prometheus: %v", err)
	}
	dir := strings.TrimSpace(string(out))
	var jobs []object
	for name, parts := range map[string][]string{"stack-dataplane": r.DataPlanes(), "stack-controlplane": r.ControlPlanes()} {
		var targets []string
		for _, part := range parts {
			targets = append(targets, strings.TrimPrefix(r.OpsURL(part), "http://"))
		}
		jobs = append(jobs, object{"job_name": name, "static_configs": []object{{"targets": targets}}})
	}
	config, err := yaml.Marshal(object{
		"global":         object{"scrape_interval": "200ms", "scrape_timeout": "200ms", "evaluation_interval": "200ms"},
		"scrape_configs": jobs, "rule_files": []string{rules},
	})
	if err != nil {
		t.Fatal(err)
	}
	data := t.TempDir()
	path := filepath.Join(data, "prometheus.yaml")
	if err := os.WriteFile(path, config, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "prometheus"), "--config.file="+path, "--storage.tsdb.path="+filepath.Join(data, "tsdb"),
		"--web.listen-address=127.0.0.1:0", "--log.format=logfmt")
	cmd.Dir = data
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(); _ = cmd.Wait() })
	address, err := listenAddress(stderr)
	if err != nil {
		t.Fatalf("start Prometheus: %v", err)
	}
	s := &server{"http://" + address}
	rig.Await(t, "all processes to be scraped", func(ctx context.Context) error {
		up, err := s.query(ctx, "sum(up)")
		if want := float64(len(r.DataPlanes()) + len(r.ControlPlanes())); err == nil && (len(up) != 1 || up[0].value != want) {
			err = fmt.Errorf("%v are up; want %v", up, want)
		}
		return err
	})
	return s
}

// listenAddress reads the log of Prometheus until it names its address. The rest is dropped.
func listenAddress(log io.Reader) (string, error) {
	listening := regexp.MustCompile(`msg="Listening on" address=(\S+)`)
	lines := bufio.NewScanner(log)
	var text []string
	for lines.Scan() {
		if m := listening.FindStringSubmatch(lines.Text()); m != nil {
			go func() { _, _ = io.Copy(io.Discard, log) }() // it ends with the process
			return m[1], nil
		}
		text = append(text, lines.Text())
	}
	return "", fmt.Errorf("it ended without listening: %s", strings.Join(text, "\n"))
}

// A sample is a series of a result with its last value.
type sample struct {
	labels map[string]string
	value  float64
}

// query returns the present result of an expression, without values that are no numbers.
func (s *server) query(ctx context.Context, expr string) ([]sample, error) {
	var answer struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	if err := s.get(ctx, "query?query="+url.QueryEscape(expr), &answer); err != nil {
		return nil, err
	}
	var found []sample
	for _, r := range answer.Data.Result {
		value, err := strconv.ParseFloat(fmt.Sprint(r.Value[1]), 64)
		if err != nil {
			return nil, err
		}
		if !math.IsNaN(value) {
			found = append(found, sample{r.Metric, value})
		}
	}
	return found, nil
}

// metrics returns the names of all metrics that have been scraped.
func (s *server) metrics(t *testing.T) []string {
	t.Helper()
	var answer struct{ Data []string }
	if err := s.get(t.Context(), "label/__name__/values", &answer); err != nil {
		t.Fatal(err)
	}
	return answer.Data
}

// firing returns the names of the alerts of a severity that fire, sorted. It fails if the text of an alert could not be
// made.
func (s *server) firing(ctx context.Context, severity string) ([]string, error) {
	var answer struct {
		Data struct {
			Alerts []struct {
				State               string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := s.get(ctx, "alerts", &answer); err != nil {
		return nil, err
	}
	var names []string
	for _, a := range answer.Data.Alerts {
		if a.State != "firing" || a.Labels["severity"] != severity {
			continue
		}
		if strings.Contains(a.Annotations["description"], "error expanding") {
			return nil, fmt.Errorf("%s has the description %q", a.Labels["alertname"], a.Annotations["description"])
		}
		names = append(names, a.Labels["alertname"])
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func (s *server) get(ctx context.Context, path string, to any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/api/v1/"+path, http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %s", path, err, text)
	}
	return json.Unmarshal(text, to)
}
