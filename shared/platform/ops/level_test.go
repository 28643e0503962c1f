package ops_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/shared/platform/ops"
)

func TestLevelIsSetFromTheSameMachineOnly(t *testing.T) {
	t.Parallel()
	level, out := new(slog.LevelVar), new(bytes.Buffer)
	log := slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: level}))
	h := ops.Handler(&ops.Probes{}, prometheus.NewRegistry(), log, ops.Options{Level: level})
	for _, step := range []struct {
		from, text string
		code       int
		want       slog.Level
	}{
		{"127.0.0.1:4000", "debug", http.StatusOK, slog.LevelDebug},
		{"[::1]:4000", "WARN\n", http.StatusOK, slog.LevelWarn},
		{"10.0.0.7:4000", "debug", http.StatusForbidden, slog.LevelWarn},
		{"", "debug", http.StatusForbidden, slog.LevelWarn},
		{"127.0.0.1:4000", "loud", http.StatusBadRequest, slog.LevelWarn},
		{"127.0.0.1:4000", strings.Repeat("info", 1000), http.StatusBadRequest, slog.LevelWarn},
		{"127.0.0.1:4000", "error", http.StatusOK, slog.LevelError},
	} {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/loglevel", strings.NewReader(step.text))
		request.RemoteAddr = step.from
		answer := httptest.NewRecorder()
		out.Reset()
		h.ServeHTTP(answer, request)
		if answer.Code != step.code || level.Level() != step.want {
			t.Errorf("%s from %q: %d, level %s; want %d, %s", step.text, step.from, answer.Code, level.Level(), step.code, step.want)
		}
		if logged := strings.Contains(out.String(), "log level changed"); logged != (step.code == http.StatusOK) {
			t.Errorf("%s from %q: logged %q", step.text, step.from, out.String())
		}
	}
	if code, body := get(t, h, "/loglevel"); code != http.StatusOK || body != "ERROR\n" {
		t.Errorf("GET: %d %q", code, body)
	}
}

func TestOnlyChangesOfTheReadinessAreLogged(t *testing.T) {
	t.Parallel()
	var probes ops.Probes
	var broken error
	probes.Add("nats", func(context.Context) error { return broken })
	out := new(bytes.Buffer)
	h := ops.Handler(&probes, prometheus.NewRegistry(), slog.New(slog.NewTextHandler(out, nil)), ops.Options{Level: new(slog.LevelVar)})
	probe := func(want int, says string) {
		t.Helper()
		out.Reset()
		for range 3 {
			get(t, h, "/readyz")
		}
		if n := strings.Count(out.String(), "readiness changed"); n != want || !strings.Contains(out.String(), says) {
			t.Errorf("logged %q; want %d lines with %q", out.String(), want, says)
		}
	}
	probe(0, "")
	broken = errors.New("not connected")
	probe(1, "level=WARN")
	broken = errors.New("closed")
	probe(1, "closed")
	broken = nil
	probe(1, "level=INFO")
}
