package ops_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"modelgateway/shared/platform/ops"
)

func get(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	body, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, string(body)
}

func TestReadinessFollowsChecks(t *testing.T) {
	t.Parallel()
	var probes ops.Probes
	var broken error
	probes.Add("postgres", func(context.Context) error { return nil })
	probes.Add("nats", func(context.Context) error { return broken })
	h := ops.Handler(&probes, prometheus.NewRegistry(), slog.New(slog.DiscardHandler), ops.Options{Level: new(slog.LevelVar)})
	for _, step := range []struct {
		name   string
		do     func()
		code   int
		checks map[string]string
	}{
		{"all checks pass", func() {}, 200, map[string]string{"postgres": "ok", "nats": "ok"}},
		{"one check fails", func() { broken = errors.New("not connected") }, 503, map[string]string{"postgres": "ok", "nats": "not connected"}},
		{"one is degraded", func() { broken = &ops.DegradedError{Reason: "slow"} }, 200, map[string]string{"postgres": "ok", "nats": "degraded: slow"}},
		{"all checks pass again", func() { broken = nil }, 200, map[string]string{"postgres": "ok", "nats": "ok"}},
		{"draining", probes.SetDraining, 503, map[string]string{"process": "draining"}},
	} {
		step.do()
		code, body := get(t, h, "/readyz")
		var got struct {
			Ready  bool
			Checks map[string]string
		}
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(step.checks, got.Checks); diff != "" || code != step.code || got.Ready != (code == 200) {
			t.Errorf("%s: %d %s; want %d (-want +got):\n%s", step.name, code, body, step.code, diff)
		}
	}
	if code, _ := get(t, h, "/livez"); code != 200 {
		t.Errorf("/livez while draining: %d; want 200", code)
	}
}

func TestHangingCheckFailsTheProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var probes ops.Probes
		probes.Add("hangs", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		if ready, results := probes.Run(t.Context()); ready || results["hangs"] == "ok" {
			t.Errorf("got %v, %v; want not ready", ready, results)
		}
	})
}

func TestHandlerServesMetricsAndPprof(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	promauto.With(reg).NewCounter(prometheus.CounterOpts{Name: "mgw_test_total", Help: "A test."}).Inc()
	h := ops.Handler(&ops.Probes{}, reg, slog.New(slog.DiscardHandler), ops.Options{Level: new(slog.LevelVar)})
	if code, body := get(t, h, "/metrics"); code != 200 || !strings.Contains(body, "mgw_test_total 1") {
		t.Errorf("/metrics: %d %s", code, body)
	}
	if code, _ := get(t, h, "/debug/pprof/"); code != 404 {
		t.Errorf("/debug/pprof/ without the option: %d; want 404", code)
	}
	h = ops.Handler(&ops.Probes{}, reg, slog.New(slog.DiscardHandler), ops.Options{Level: new(slog.LevelVar), Pprof: true})
	if code, _ := get(t, h, "/debug/pprof/"); code != 200 {
		t.Errorf("/debug/pprof/: %d; want 200", code)
	}
}
