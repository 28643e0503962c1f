package traffic

import (
	"cmp"
	"slices"
	"time"

	"modelgateway/shared/pulse"
)

// RouteHealth is how a route does, as the proxies report it.
type RouteHealth struct {
	// Breakers are those of the proxies on which the route has failed; on the others that report it is closed.
	Breakers []ProxyBreaker
	// Calls are the calls of the last 1, 5 and 60 minutes, in the order of CallSpans.
	Calls [3]Calls
	// FirstToken are the times to the first bytes of streams in the last 5 minutes.
	FirstToken Sum
}

// CallSpans are the spans of RouteHealth.Calls.
var CallSpans = [3]time.Duration{time.Minute, 5 * time.Minute, time.Hour}

// Calls counts calls of a route.
type Calls struct{ Attempts, Failures int64 }

// ProxyBreaker is the circuit breaker of a route on one proxy, with absolute times.
type ProxyBreaker struct {
	Proxy string
	State pulse.BreakerState
	// ReportedAt is when the proxy said so; Silent means that it does not report any more.
	ReportedAt time.Time
	Silent     bool
	// Since is when the breaker opened, NextTry when a request may call the route; zero while it is closed.
	Since, NextTry time.Time
	// Failures is the number of failures in a row, while it is closed. Class and FailedAt are those of the last failure.
	Failures int
	Class    string
	FailedAt time.Time
	// AsideUntil is until when other routes are preferred; zero if they are not.
	AsideUntil time.Time
}

// Health is how all routes do that were called or have failed.
type Health struct {
	Coverage
	// Since is from when on calls are counted, if that is less than an hour ago.
	Since  time.Time
	Routes map[string]*RouteHealth
	// Doubts are the doubts about the usage that providers reported in the last hour, by provider and reason.
	Doubts []UsageDoubt
	// LeftOut are the members that calls of the last hour left out, by provider, route and member.
	LeftOut []LeftOut
}

// LeftOut counts the calls of a route without a member that the gateway otherwise adds and its provider has refused.
type LeftOut struct {
	Provider, Route, Member string
	Calls                   int64
}

// UsageDoubt counts the answers of a provider whose usage it did not report, or not credibly, for one reason.
type UsageDoubt struct {
	Provider, Reason string
	// Answers is their number, Of that of all successful calls of the provider.
	Answers, Of int64
}

// okOutcome is the outcome of successful calls.
const okOutcome = "ok"

// UsageDoubts returns the doubts about the usage that providers reported in the last hour, by provider and reason.
func (l *Live) UsageDoubts() []UsageDoubt { return usageDoubts(l.lastHour()) }

// LeftOut returns the members that calls of the last hour left out, by provider, route and member.
func (l *Live) LeftOut() []LeftOut { return leftOut(l.lastHour()) }

// lastHour returns a copy of the sums of the last hour.
func (l *Live) lastHour() *Period {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	hour := l.long.sum(now, 59)
	hour.merge(l.long.at(now))
	return hour
}

func leftOut(p *Period) []LeftOut {
	var all []LeftOut
	p.Each(pulse.LeftOut, func(s pulse.Series, sum *Sum) {
		all = append(all, LeftOut{s.Provider, s.Route, s.Outcome, sum.N})
	})
	slices.SortFunc(all, func(a, b LeftOut) int {
		return cmp.Or(cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Route, b.Route), cmp.Compare(a.Member, b.Member))
	})
	return all
}

func usageDoubts(p *Period) []UsageDoubt {
	answered := map[string]int64{}
	p.Each(pulse.Attempts, func(s pulse.Series, sum *Sum) {
		if s.Outcome == okOutcome {
			answered[s.Provider] += sum.N
		}
	})
	var doubts []UsageDoubt
	p.Each(pulse.Doubts, func(s pulse.Series, sum *Sum) {
		doubts = append(doubts, UsageDoubt{s.Provider, s.Outcome, sum.N, answered[s.Provider]})
	})
	slices.SortFunc(doubts, func(a, b UsageDoubt) int {
		return cmp.Or(cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Reason, b.Reason))
	})
	return doubts
}

// Health returns how the routes do.
func (l *Live) Health() Health {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	h := Health{Coverage: l.coverage(now), Since: l.began, Routes: map[string]*RouteHealth{}}
	of := func(id string) *RouteHealth {
		if h.Routes[id] == nil {
			h.Routes[id] = &RouteHealth{}
		}
		return h.Routes[id]
	}

	// The current period counts, too: it is what has happened last.
	recent := func(w *window, n int) *Period {
		all := w.sum(now, n)
		all.merge(w.at(now))
		return all
	}

	for i, p := range []*Period{recent(l.middle, 6), recent(l.middle, 30), recent(l.long, 59)} {
		p.Each(pulse.Attempts, func(s pulse.Series, sum *Sum) {
			calls := &of(s.Route).Calls[i]
			calls.Attempts += sum.N
			if s.Outcome != okOutcome {
				calls.Failures += sum.N
			}
		})
		if CallSpans[i] == 5*time.Minute {
			p.Each(pulse.FirstToken, func(s pulse.Series, sum *Sum) { of(s.Route).FirstToken.add(sum) })
		}
	}

	hour := recent(l.long, 59)
	h.Doubts, h.LeftOut = usageDoubts(hour), leftOut(hour)
	for _, p := range l.processes {
		if p.Last ||
			slices.ContainsFunc(h.Proxies, func(other Proxy) bool { return other.Name == p.Proxy && other.HeardAt.After(p.heard) }) {
			continue
		}
		for id, b := range p.breakers {
			route := of(id)
			route.Breakers = append(route.Breakers, b.absolute(p.Proxy, now.Sub(p.heard) > silentAfter))
		}
	}

	for _, route := range h.Routes {
		slices.SortFunc(route.Breakers, func(a, b ProxyBreaker) int { return cmp.Compare(a.Proxy, b.Proxy) })
	}

	return h
}

// absolute turns the ages of a report into times.
func (b *breaker) absolute(proxy string, silent bool) ProxyBreaker {
	ago := func(ms int64) time.Time { return b.at.Add(-time.Duration(ms) * time.Millisecond) }
	view := ProxyBreaker{
		Proxy:      proxy,
		State:      b.State,
		ReportedAt: b.at,
		Silent:     silent,
		Failures:   b.Failures,
		Class:      b.Class,
		FailedAt:   ago(b.FailedMS),
	}
	if b.State != pulse.Closed {
		view.Since, view.NextTry = ago(b.SinceMS), ago(-b.NextTryMS)
	}
	if b.CooldownMS > 0 {
		view.AsideUntil = ago(-b.CooldownMS)
	}

	return view
}
