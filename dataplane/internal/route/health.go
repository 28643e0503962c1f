package route

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"modelgateway/shared/pulse"
)

// failure is the last failure of a route.
type failure struct {
	class string
	at    time.Time
}

// RecordFailure notes the error class of a failed call of a route, for Health. It changes no breaker.
func (p *Picker) RecordFailure(id, class string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failures[id] = failure{class, p.now()}
}

// FollowResets closes the circuit breakers of the routes that were reset since the last call, and ends their cooldowns.
// resets has how often each route was reset.
func (p *Picker) FollowResets(resets map[string]int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, n := range resets {
		if p.resets[id] != n {
			delete(p.breakers, id)
			delete(p.cooldowns, id)
			maps.DeleteFunc(p.pauses, func(pair limitKey, _ time.Time) bool { return pair.route == id })
		}
	}
	p.resets = resets
}

// Health returns the routes that have failed since the start, with the state of their circuit breakers: those that are
// not closed first, then by id. It forgets the routes for which used returns false.
func (p *Picker) Health(used func(id string) bool) []pulse.Breaker {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	all := make([]pulse.Breaker, 0, len(p.failures))
	for id, last := range p.failures {
		if !used(id) {
			delete(p.failures, id)
			continue
		}

		b := p.breakers[id]
		row := pulse.Breaker{
			Route:    id,
			State:    pulse.Closed,
			Failures: b.failures,
			Class:    last.class,
			FailedMS: now.Sub(last.at).Milliseconds(),
		}

		switch b.state(now) {
		case stateClosed:
		case stateHalfOpen:
			row.State = pulse.HalfOpen
		case stateOpen:
			row.State, row.NextTryMS = pulse.Open, b.until.Sub(now).Milliseconds()
		}

		if row.State != pulse.Closed {
			row.SinceMS = now.Sub(b.since).Milliseconds()
		}
		until := p.cooldowns[id]
		for pair, paused := range p.pauses {
			if pair.route == id {
				until = latest(until, paused)
			}
		}
		if until.After(now) {
			row.CooldownMS = until.Sub(now).Milliseconds()
		}

		all = append(all, row)
	}

	slices.SortFunc(all, func(a, b pulse.Breaker) int {
		closed := func(b pulse.Breaker) int {
			if b.State == pulse.Closed {
				return 1
			}
			return 0
		}
		return cmp.Or(closed(a)-closed(b), cmp.Compare(a.Route, b.Route))
	})

	return all
}
