package traffic

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"modelgateway/shared/pulse"
)

// The widths and numbers of the periods in memory.
const (
	shortWidth, shortPeriods   = pulse.Interval, 32
	middleWidth, middlePeriods = 10 * time.Second, 92
	longWidth, longPeriods     = time.Minute, 64
	// nowPeriods are the short periods that current rates cover.
	nowPeriods = 5
)

// Live has what the proxies have reported in the last hour. It is safe for concurrent use.
type Live struct {
	now func() time.Time
	// began is when reports could first arrive.
	began time.Time

	mu                  sync.Mutex
	processes           map[string]*process
	short, middle, long *window
	sessions            []Session
	refusals            map[time.Time]map[RefusalKey]*Refusal // by minute
	// latest is the last answer of Now.
	latest *Now
}

// Session is an active session in the database.
type Session struct {
	ID   int64
	Name string
}

// process is one process of a proxy.
type process struct {
	pulse.Report
	heard  time.Time
	totals map[pulse.Series]*pulse.Total
	// settled is when a series that was not reported before counts as new. Until then, its total may be old.
	settled  time.Time
	breakers map[string]breaker
}

// breaker is a circuit breaker as it was reported at a time.
type breaker struct {
	pulse.Breaker
	at time.Time
}

// NewLive returns a Live without reports. now is the clock; nil means time.Now.
func NewLive(now func() time.Time) *Live {
	if now == nil {
		now = time.Now
	}
	return &Live{
		now:       now,
		began:     now(),
		processes: map[string]*process{},
		refusals:  map[time.Time]map[RefusalKey]*Refusal{},
		short:     newWindow(shortWidth, shortPeriods),
		middle:    newWindow(middleWidth, middlePeriods),
		long:      newWindow(longWidth, longPeriods),
	}
}

// Receive handles the report of a proxy.
func (l *Live) Receive(r *pulse.Report) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	p := l.processes[r.Process]
	if p == nil {
		p = &process{totals: map[pulse.Series]*pulse.Total{}, breakers: map[string]breaker{}}
		if now.Add(-time.Duration(r.UptimeMS) * time.Millisecond).Before(l.began) { // its totals include a time without reports
			p.settled = now
			if r.Partial {
				p.settled = now.Add(time.Minute)
			}
		}
		l.forget()
		l.processes[r.Process] = p
	}

	p.Report, p.heard = *r, now
	periods := []*Period{l.short.at(now), l.middle.at(now), l.long.at(now)}
	for i := range r.Totals {
		if difference := p.count(&r.Totals[i], now); difference != nil {
			for _, period := range periods {
				period.sum(r.Totals[i].Series).add(difference)
			}
		}
	}

	for _, period := range periods {
		period.Heard[r.Proxy] = p.running()
	}

	if !r.Partial {
		p.breakers = map[string]breaker{}
	}

	for _, b := range r.Breakers {
		p.breakers[b.Route] = breaker{b, now}
	}

	l.countRefusals(now, r)
	p.Totals, p.Breakers, p.Refusals = nil, nil, nil
}

// forget makes room for one more process. The caller holds the lock.
func (l *Live) forget() {
	if len(l.processes) < maxProcesses {
		return
	}
	oldest := ""
	for id, p := range l.processes {
		if oldest == "" || p.heard.Before(l.processes[oldest].heard) {
			oldest = id
		}
	}
	delete(l.processes, oldest)
}

// count takes a total and returns what has been counted since the last one; nil if that is unknown or nothing.
func (p *process) count(total *pulse.Total, now time.Time) *Sum {
	earlier := p.totals[total.Series]
	switch {
	case earlier == nil && len(p.totals) >= maxSeries:
		return nil
	case earlier == nil && !p.settled.IsZero() && !now.After(p.settled):
		p.totals[total.Series] = total
		return nil
	case earlier == nil:
		earlier = &pulse.Total{}
	}

	difference, ok := since(total, earlier)
	p.totals[total.Series] = total
	if !ok || difference.N == 0 {
		return nil
	}

	return &difference
}

// running returns the number of requests in flight.
func (p *process) running() (n int64) {
	for _, running := range p.InFlight {
		n += running
	}
	return n
}

// SetSessions sets the active sessions, so that a proxy that never reported is noticed.
func (l *Live) SetSessions(active []Session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sessions = active
}

// Proxy is a proxy that reports, or should.
type Proxy struct {
	Name string
	// Session is zero if the proxy has none.
	Session int64
	// HeardAt is the time of its last report, zero if there was none. Silent means that it is too long ago.
	HeardAt  time.Time
	Silent   bool
	Draining bool
	InFlight int64
	Spool    pulse.Spool
}

// proxies returns the proxies by name, and forgets those that have ended. The caller holds the lock.
func (l *Live) proxies(now time.Time) []Proxy {
	var all []Proxy
	heard := map[string]bool{}
	for id, p := range l.processes {
		age := now.Sub(p.heard)
		active := slices.ContainsFunc(l.sessions, func(s Session) bool { return s.ID == int64(p.Session) && s.Name == p.Proxy })
		if age > silentAfter && (p.Last || (!active && age > forgetAfter)) {
			delete(l.processes, id)
			continue
		}
		if p.Last {
			heard[p.Proxy] = heard[p.Proxy] || age <= silentAfter // it has said that it ends
			continue
		}
		silent := age > silentAfter
		heard[p.Proxy] = heard[p.Proxy] || !silent
		all = append(all, Proxy{p.Proxy, int64(p.Session), p.heard, silent, p.Draining, p.running(), p.Spool})
	}

	// A process that was killed and started again is silent and heard.
	all = slices.DeleteFunc(all, func(p Proxy) bool { return p.Silent && heard[p.Name] })
	for _, s := range l.sessions {
		if !heard[s.Name] && !slices.ContainsFunc(all, func(p Proxy) bool { return p.Name == s.Name }) {
			all = append(all, Proxy{Name: s.Name, Session: s.ID, Silent: true})
		}
	}

	slices.SortFunc(all, func(a, b Proxy) int { return cmp.Or(cmp.Compare(a.Name, b.Name), a.HeardAt.Compare(b.HeardAt)) })
	return all
}

// Coverage says of how many proxies figures are.
type Coverage struct {
	// Heard and Silent are the numbers of proxies that have reported, and that should have.
	Heard, Silent int
	Proxies       []Proxy
}

// Coverage returns the proxies that report and those that are silent.
func (l *Live) Coverage() Coverage {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.coverage(l.now())
}

func (l *Live) coverage(now time.Time) Coverage {
	c := Coverage{Proxies: l.proxies(now)}
	for i := range c.Proxies {
		if c.Proxies[i].Silent {
			c.Silent++
		} else {
			c.Heard++
		}
	}
	return c
}

// Now is the traffic at a moment.
type Now struct {
	At time.Time
	// Window is the time that the rates cover.
	Window time.Duration
	Coverage
	// InFlight has the requests that the reporting proxies handle, by endpoint.
	InFlight map[string]int64
	// Recent has what was counted in the window, Minute what was counted in the last minute.
	Recent, Minute *Period
	// History has the last 15 minutes in periods of ten seconds, oldest first.
	History []*Period
}

// HistoryStep is the length of the periods of Now.History, of which there are historyPeriods.
const (
	HistoryStep    = middleWidth
	historyPeriods = 90
)

// Now returns the traffic at the moment. The result is shared: it must not be changed.
func (l *Live) Now() *Now {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if l.latest != nil && now.Sub(l.latest.At) < time.Second {
		return l.latest // several operators look at it
	}

	answer := &Now{
		At:       now,
		Window:   nowPeriods * shortWidth,
		Coverage: l.coverage(now),
		InFlight: map[string]int64{},
		Recent:   l.short.sum(now, nowPeriods),
		Minute:   l.middle.sum(now, int(time.Minute/middleWidth)),
		History:  l.middle.last(now, historyPeriods),
	}

	for _, p := range l.processes {
		if now.Sub(p.heard) <= silentAfter && !p.Last {
			for endpoint, n := range p.InFlight {
				answer.InFlight[endpoint] += n
			}
		}
	}

	l.latest = answer
	return answer
}

// Rate returns how many were counted in a second, by the label that of returns; empty labels are left out.
func (p *Period) Rate(m pulse.Measure, window time.Duration, of func(pulse.Series) string) map[string]float64 {
	rates := map[string]float64{}
	p.Each(m, func(series pulse.Series, sum *Sum) {
		if label := of(series); label != "" {
			rates[label] += float64(sum.N) / window.Seconds()
		}
	})
	return rates
}

// Times returns all observed times of a measure.
func (p *Period) Times(m pulse.Measure) *Sum {
	all := &Sum{}
	p.Each(m, func(_ pulse.Series, sum *Sum) { all.add(sum) })
	return all
}
