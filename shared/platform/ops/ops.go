// Package ops serves probes and metrics on a listener of their own: /livez,
// /readyz, /metrics, /loglevel and, if it is enabled, /debug/pprof.
//
// /livez reports that the process runs. /readyz runs every registered check
// and reports whether the process can do its work now.
package ops

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
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

// Check returns nil if the component that it checks works now, else an error
// with the reason, which may be a DegradedError.
type Check func(ctx context.Context) error

// DegradedError is the error of a check whose component works, though not as it
// should. It is shown and does not make the process unready.
type DegradedError struct{ Reason string }

func (e *DegradedError) Error() string { return "degraded: " + e.Reason }

// Probes is the state behind /readyz. The zero value has no checks and is
// ready. It is safe for concurrent use.
type Probes struct {
	draining atomic.Bool

	mu     sync.Mutex
	checks []namedCheck // only appended to
	// known are the results of the last probe; nil while every check has succeeded since the start.
	known map[string]string
}

type namedCheck struct {
	name  string
	check Check
}

// Add registers a check that /readyz runs from now on.
func (p *Probes) Add(name string, check Check) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.checks = append(p.checks, namedCheck{name, check})
}

// SetDraining makes /readyz fail from now on, so that no new work is sent here.
func (p *Probes) SetDraining() { p.draining.Store(true) }

// Draining reports whether SetDraining was called.
func (p *Probes) Draining() bool { return p.draining.Load() }

// isChange reports whether the results differ from those of the last probe. At
// first, all checks count as successful.
func (p *Probes) isChange(ready bool, results map[string]string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	results = maps.Clone(results)
	maps.DeleteFunc(results, func(_, text string) bool { return ready && text == ok })
	if len(results) == 0 {
		results = nil
	}
	if maps.Equal(p.known, results) {
		return false
	}
	p.known = results
	return true
}

// ok is the result of a check that succeeds.
const ok = "ok"

// Run runs all checks concurrently. The results hold "ok" or the text of the
// error by the name of the check.
func (p *Probes) Run(ctx context.Context) (ready bool, results map[string]string) {
	if p.draining.Load() {
		return false, map[string]string{"process": "draining"}
	}

	p.mu.Lock()
	checks := p.checks
	p.mu.Unlock()
	texts := make([]string, len(checks))
	var failed atomic.Bool
	var all sync.WaitGroup
	for i, c := range checks {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, checkTimeout)
			defer cancel()
			texts[i] = ok
			if err := c.check(ctx); err != nil {
				texts[i] = err.Error()
				if _, degraded := errors.AsType[*DegradedError](err); !degraded {
					failed.Store(true)
				}
			}
		})
	}

	all.Wait()
	results = make(map[string]string, len(checks))
	for i, c := range checks {
		results[c.name] = texts[i]
	}

	return !failed.Load(), results
}

// Options select what Handler serves beside probes and metrics.
type Options struct {
	// Level is the level of the log, which /loglevel shows and sets.
	Level *slog.LevelVar
	// Pprof adds the profiler.
	Pprof bool
}

// Handler serves the probes and the metrics of reg. The caller may add routes of
// its own. A change of the readiness is logged, not each probe.
func Handler(p *Probes, reg *prometheus.Registry, log *slog.Logger, o Options) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("ok\n")) // fails if the prober has hung up
	})

	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ready, results := p.Run(r.Context())
		w.Header().Set("Content-Type", "application/json")
		if p.isChange(ready, results) {
			level := slog.LevelInfo
			if !ready {
				level = slog.LevelWarn
			}
			log.Log(r.Context(), level, "readiness changed", "ready", ready, "checks", results)
		}
		if !ready {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"ready": ready, "checks": results}) // fails if the prober has hung up
	})

	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{Registry: reg}))
	serveLevel(mux, o.Level, log)

	if o.Pprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}

	return mux
}
