// Package ops owns the listener for probes and metrics, apart from the one
// that serves customers: /livez, /readyz, /metrics and, if asked for,
// /debug/pprof.
//
// /livez says that the process runs; /readyz says whether it can do its work
// now, by asking every check.
package ops

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// checkTimeout bounds each check of a probe.
const checkTimeout = 2 * time.Second

// Check says why something cannot work now, or nil if it can.
type Check func(ctx context.Context) error

// Probes is the state behind /readyz. Its zero value has no checks and is
// ready. It is safe for concurrent use.
type Probes struct {
	stopping atomic.Bool

	mu     sync.Mutex
	checks []namedCheck // only appended to
}

type namedCheck struct {
	name  string
	check Check
}

// Add has /readyz ask a check from now on.
func (p *Probes) Add(name string, check Check) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.checks = append(p.checks, namedCheck{name, check})
}

// Stopping makes /readyz fail for good, so that no new work is sent here.
func (p *Probes) Stopping() { p.stopping.Store(true) }

// Stopped tells whether Stopping was called.
func (p *Probes) Stopped() bool { return p.stopping.Load() }

// Run asks every check and returns what each says: "ok" or why not.
func (p *Probes) Run(ctx context.Context) (ready bool, results map[string]string) {
	if p.stopping.Load() {
		return false, map[string]string{"process": "stopping"}
	}
	p.mu.Lock()
	checks := p.checks
	p.mu.Unlock()
	texts := make([]string, len(checks))
	var all sync.WaitGroup
	for i, c := range checks {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, checkTimeout)
			defer cancel()
			texts[i] = "ok"
			if err := c.check(ctx); err != nil {
				texts[i] = err.Error()
			}
		})
	}
	all.Wait()
	ready, results = true, make(map[string]string, len(checks))
	for i, c := range checks {
		results[c.name] = texts[i]
		ready = ready && texts[i] == "ok"
	}
	return ready, results
}

// Handler serves the probes and the metrics of reg; withPprof adds the
// profiler.
func Handler(p *Probes, reg *prometheus.Registry, log *slog.Logger, withPprof bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("ok\n")) // a prober that hung up
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ready, results := p.Run(r.Context())
		w.Header().Set("Content-Type", "application/json")
		if !ready {
			log.WarnContext(r.Context(), "not ready", "checks", results)
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"ready": ready, "checks": results}) // a prober that hung up
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{Registry: reg}))
	if withPprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return mux
}
