package route

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/dataplane/internal/catalog"
)

// Attempt is one call of a route. Only the first call of Succeeded, Failed or End has an effect. End does not change
// the circuit breaker.
type Attempt struct {
	picker *Picker
	id     string
	probe  bool
	done   bool
}

// Begin asks the circuit breaker of a route for permission to call it. If ok is true, the caller ends the Attempt.
func (p *Picker) Begin(id string) (a Attempt, ok bool) {
	p.mu.RLock()
	_, known := p.breakers[id]
	p.mu.RUnlock()
	a = Attempt{picker: p, id: id}
	if !known {
		return a, true
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	b, now := p.breakers[id], p.now()
	if !b.allows(now) {
		return a, false
	}

	if b.state(now) == stateHalfOpen {
		a.probe, b.probing = true, true
		p.breakers[id] = b
	}

	return a, true
}

// Succeeded reports that the route works.
func (a *Attempt) Succeeded() {
	a.end(func(b breaker, now time.Time) breaker { return b.succeeded(now, a.probe) }, false)
}

// Failed reports that the route does not work. If the breaker opens, it stays open for at least pause. A failure is
// doubtful if the request of the account alone may have caused it.
func (a *Attempt) Failed(pause time.Duration, account string, doubtful bool) {
	a.end(func(b breaker, now time.Time) breaker {
		if doubtful {
			return b.failedDoubtfully(now, pause, a.probe, fnv1a(fnvOffset, account))
		}
		return b.failed(now, pause, a.probe)
	}, true)
}

// End ends an attempt that showed nothing about the route.
func (a *Attempt) End() {
	a.end(func(b breaker, _ time.Time) breaker { return b.abandoned(a.probe) }, false)
}

// end applies a result to the breaker. The breaker of a route is created at the route's first failure.
func (a *Attempt) end(result func(breaker, time.Time) breaker, failed bool) {
	if a.done {
		return
	}

	a.done = true
	p := a.picker
	if !failed {
		p.mu.RLock()
		_, known := p.breakers[a.id]
		p.mu.RUnlock()
		if !known {
			return
		}
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.breakers[a.id]
	p.breakers[a.id] = result(before, p.now())
	if p.breakers[a.id].opened > before.opened {
		p.openings[a.id]++
	}
}

// maxRetryAfter bounds RetryAfter during maintenance, which may end early.
const maxRetryAfter = time.Hour

// RetryAfter returns the time until the first of some routes may be called again: until its breaker allows it and the
// maintenance of its provider ends, if the end is known. It is zero if no route has a known time.
func (p *Picker) RetryAfter(routes []*catalog.Route) (wait time.Duration) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	now := p.now()
	for _, r := range routes {
		var until time.Time
		if b, known := p.breakers[r.ID]; known && b.state(now) != stateClosed {
			until = b.until
		}

		if m := r.Provider.Maintenance; m.Active(now) {
			if m.UntilUnix == 0 {
				continue
			}
			if end := time.Unix(m.UntilUnix, 0); end.After(until) {
				until = end
			}
		}

		if until.IsZero() {
			continue
		}
		if left := min(max(until.Sub(now), time.Second), maxRetryAfter); wait == 0 || left < wait {
			wait = left
		}
	}

	return wait
}

var (
	breakerStateDesc = prometheus.NewDesc("mgw_route_breaker_state",
		"State of the circuit breaker of a route that has failed: 0 closed, 1 half-open, 2 open.", []string{"route"}, nil)
	turnsRefusedDesc = prometheus.NewDesc("mgw_route_turns_refused_total",
		"Requests that were not sent to a rate-limited route, because other accounts had their turns.", []string{"route"}, nil)
	breakerOpeningsDesc = prometheus.NewDesc("mgw_route_breaker_openings_total",
		"Number of times that the circuit breaker of a route has opened.", []string{"route"}, nil)
)

// Failing returns the ids of the routes whose circuit breaker is not closed: their last calls
// have all failed, and none has succeeded since.
func (p *Picker) Failing() (ids []string) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	now := p.now()
	for id, b := range p.breakers {
		if b.state(now) != stateClosed {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func (p *Picker) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- breakerStateDesc
	descriptions <- breakerOpeningsDesc
	descriptions <- turnsRefusedDesc
}

// Collect implements prometheus.Collector. Operators bound the number of routes, which are the values of the label.
func (p *Picker) Collect(metrics chan<- prometheus.Metric) {
	p.limits.mu.Lock()
	for id, n := range p.limits.refused {
		metrics <- prometheus.MustNewConstMetric(turnsRefusedDesc, prometheus.CounterValue, float64(n), id)
	}
	p.limits.mu.Unlock()
	p.mu.RLock()
	defer p.mu.RUnlock()
	now := p.now()
	for id, b := range p.breakers {
		metrics <- prometheus.MustNewConstMetric(breakerStateDesc, prometheus.GaugeValue, float64(b.state(now)), id)
		metrics <- prometheus.MustNewConstMetric(breakerOpeningsDesc, prometheus.CounterValue, float64(p.openings[id]), id)
	}
}
