package route

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/dataplane/internal/catalog"
)

// Attempt is one request on its way over a route. Its first verdict counts;
// End is one that says nothing.
type Attempt struct {
	picker *Picker
	id     string
	probe  bool
	done   bool
}

// Begin asks the breaker of a route to let a request through. The caller ends
// the Attempt.
func (p *Picker) Begin(id string) (a Attempt, ok bool) {
	p.mu.RLock()
	_, noted := p.breakers[id]
	p.mu.RUnlock()
	a = Attempt{picker: p, id: id}
	if !noted {
		return a, true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	b, now := p.breakers[id], p.now()
	if !b.lets(now) {
		return a, false
	}
	if b.state(now) == HalfOpen {
		a.probe, b.probing = true, true
		p.breakers[id] = b
	}
	return a, true
}

// Succeeded says that the route served.
func (a *Attempt) Succeeded() {
	a.end(func(b breaker, now time.Time) breaker { return b.succeeded(now, a.probe) }, false)
}

// Failed says that the route did not serve, and for how long it should rest.
func (a *Attempt) Failed(pause time.Duration) {
	a.end(func(b breaker, now time.Time) breaker { return b.failed(now, pause, a.probe) }, true)
}

// End says nothing, unless something was said before.
func (a *Attempt) End() {
	a.end(func(b breaker, _ time.Time) breaker { return b.left(a.probe) }, false)
}

// end applies a verdict. A route without a breaker gets one only for a failure.
func (a *Attempt) end(verdict func(breaker, time.Time) breaker, failed bool) {
	if a.done {
		return
	}
	a.done = true
	p := a.picker
	if !failed {
		p.mu.RLock()
		_, noted := p.breakers[a.id]
		p.mu.RUnlock()
		if !noted {
			return
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.breakers[a.id]
	p.breakers[a.id] = verdict(before, p.now())
	if p.breakers[a.id].opened > before.opened {
		p.opened[a.id]++
	}
}

// longestWait bounds what is told of maintenance, which may end early.
const longestWait = time.Hour

// Wait is how long it takes until the first of some routes that are not let
// through now may be tried: until its breaker lets it and the maintenance of its provider ends, if it is known when.
// It is zero if there is none.
func (p *Picker) Wait(routes []*catalog.Route) (wait time.Duration) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	now := p.now()
	for _, r := range routes {
		var until time.Time
		if b, noted := p.breakers[r.ID]; noted && b.state(now) != Closed {
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
		if left := min(max(until.Sub(now), time.Second), longestWait); wait == 0 || left < wait {
			wait = left
		}
	}
	return wait
}

var (
	stateDesc  = prometheus.NewDesc("mgw_breaker_state", "Breaker of a route that has failed: 0 closed, 1 half-open, 2 open.", []string{"route"}, nil)
	openedDesc = prometheus.NewDesc("mgw_breaker_opened_total", "How often the breaker of a route has opened.", []string{"route"}, nil)
)

// Describe implements prometheus.Collector.
func (p *Picker) Describe(to chan<- *prometheus.Desc) {
	to <- stateDesc
	to <- openedDesc
}

// Collect implements prometheus.Collector. Routes come from the catalog, so
// their number is bounded by operators.
func (p *Picker) Collect(to chan<- prometheus.Metric) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	now := p.now()
	for id, b := range p.breakers {
		to <- prometheus.MustNewConstMetric(stateDesc, prometheus.GaugeValue, float64(b.state(now)), id)
		to <- prometheus.MustNewConstMetric(openedDesc, prometheus.CounterValue, float64(p.opened[id]), id)
	}
}
