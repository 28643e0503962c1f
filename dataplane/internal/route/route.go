// Package route chooses the route to a provider and the credential that is used: the order in which the routes of a model are
// attempted for a conversation (package affinity says which one it is).
//
// Routes with the lowest priority number come first. Among routes of one priority, weights distribute the conversations, and
// the credentials of a provider share its part equally. A conversation keeps its route and credential while the set of them is
// the same, because prompt caches and encrypted reasoning are valid at one account of a provider only.
//
// After a failure, a route or credential has a cooldown during which others are preferred: a route with a cooldown is
// attempted when all others have failed, the one whose cooldown ends first before the rest. One broken connection must
// not block all requests of a model that has no other route, or whose other routes are broken. If a route keeps failing,
// its circuit breaker opens and no request calls it until a probe has succeeded. A rate limit does not count as a
// failure for the circuit breaker, and concerns the route with the credential that it came for.
//
// While a provider limits the rate of calls, the accounts take turns (see turns): one account's flood cannot take all of
// the calls that the provider accepts.
package route

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"modelgateway/dataplane/internal/catalog"
	"modelgateway/shared/event"
	"modelgateway/shared/wire"
)

// Picker orders routes, and keeps their cooldowns and circuit breakers. It is safe for concurrent use.
type Picker struct {
	now func() time.Time

	mu        sync.RWMutex
	cooldowns map[string]time.Time // end of the cooldown by id of route or credential
	// pauses has the end of the pause that a provider has asked for after too many calls.
	pauses map[limitKey]time.Time
	// refusals has the reason for which a provider refused a credential, by the id of the credential, until it works
	// again.
	refusals map[string]string
	// doubts has the last doubtful failure by id of route or credential.
	doubts map[string]doubt
	// breakers has the circuit breakers of routes that have failed, openings how often they have opened, by route id.
	breakers map[string]breaker
	openings map[string]int
	// failures has the last failure of each route that has failed.
	failures map[string]failure
	// resets has how often each route was reset, in the catalog that is in use.
	resets map[string]int64
	limits limits
}

// New returns a Picker. now is the clock; nil means time.Now.
func New(now func() time.Time) *Picker {
	if now == nil {
		now = time.Now
	}
	return &Picker{
		now:       now,
		cooldowns: map[string]time.Time{},
		pauses:    map[limitKey]time.Time{},
		refusals:  map[string]string{},
		doubts:    map[string]doubt{},
		breakers:  map[string]breaker{},
		openings:  map[string]int{},
		failures:  map[string]failure{},
		limits:    limits{by: map[limitKey]*limit{}, refused: map[string]int{}},
	}
}

// StartCooldown starts a cooldown of a route or credential. It does not shorten a running one.
func (p *Picker) StartCooldown(id string, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	for other, until := range p.cooldowns {
		if until.Before(now) {
			delete(p.cooldowns, other)
		}
	}
	if until := now.Add(d); until.After(p.cooldowns[id]) {
		p.cooldowns[id] = until
	}
}

// RecordRefusal starts a cooldown of a credential that its provider refuses. The reason is wire.KeyRejected or
// wire.QuotaExhausted.
func (p *Picker) RecordRefusal(id, reason string, d time.Duration) {
	p.StartCooldown(id, d)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusals[id] = reason
}

// doubt is a failure that the request of an account alone may have caused.
type doubt struct {
	account string
	at      time.Time
}

// doubtLasts is how long a doubtful failure of one account can be confirmed by one of another.
const doubtLasts = time.Minute

// Confirm records a doubtful failure of a route or credential in a request of an account. It reports whether another
// account had one within the last minute, without a success in between.
func (p *Picker) Confirm(id, account string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	for other, d := range p.doubts {
		if now.Sub(d.at) > doubtLasts {
			delete(p.doubts, other)
		}
	}
	before, there := p.doubts[id]
	if there && before.account != account {
		return true
	}
	p.doubts[id] = doubt{account, now}
	return false
}

// RecordSuccess records that a route or credential has served a request: it removes a cooldown that is over, the doubtful
// failures, and the refusal. A running cooldown stays, because the request began before it.
func (p *Picker) RecordSuccess(id string) {
	p.mu.RLock()
	_, there := p.cooldowns[id]
	_, refused := p.refusals[id]
	_, doubted := p.doubts[id]
	p.mu.RUnlock()
	if !there && !refused && !doubted {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.doubts, id)
	if p.now().After(p.cooldowns[id]) {
		delete(p.cooldowns, id)
		delete(p.refusals, id)
	}
}

// RefusedCredentials returns the credentials that were refused when they were last used, sorted by id. It removes those
// for which used returns false.
func (p *Picker) RefusedCredentials(used func(id string) bool) []wire.RefusedCredential {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []wire.RefusedCredential
	for id, reason := range p.refusals {
		if !used(id) {
			delete(p.refusals, id)
			continue
		}
		found = append(found, wire.RefusedCredential{Credential: id, Reason: reason})
	}
	slices.SortFunc(found, func(a, b wire.RefusedCredential) int { return cmp.Compare(a.Credential, b.Credential) })
	return found
}

// until returns the end of the cooldown of a route or credential, zero if it has none. The caller holds the lock.
func (p *Picker) until(id string, now time.Time) time.Time {
	if until, there := p.cooldowns[id]; there && !now.After(until) {
		return until
	}
	return time.Time{}
}

// pairUntil returns the end of the pause that a provider has asked for after too many calls of a route with a credential,
// zero if there is none. The caller holds the lock.
func (p *Picker) pairUntil(pair limitKey, now time.Time) time.Time {
	if until, there := p.pauses[pair]; there && !now.After(until) {
		return until
	}
	return time.Time{}
}

// Pause returns how long a choice should not be called, zero if it can be.
func (p *Picker) Pause(c Choice) time.Duration {
	p.mu.RLock()
	defer p.mu.RUnlock()
	now := p.now()
	until := latest(latest(p.until(c.ID, now), p.until(c.Credential.ID, now)), p.pairUntil(c.pair(), now))
	if until.IsZero() {
		return 0
	}
	return until.Sub(now)
}

// StartPause keeps calls away from a route with one credential, whose rate the provider limits. It does not shorten a running
// pause.
func (p *Picker) StartPause(c Choice, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	for other, until := range p.pauses {
		if until.Before(now) {
			delete(p.pauses, other)
		}
	}
	if until := now.Add(d); until.After(p.pauses[c.pair()]) {
		p.pauses[c.pair()] = until
	}
}

// Choice is a route and the credential to use on it.
type Choice struct {
	*catalog.Route
	Credential catalog.Credential
	// CooldownUntil is the end of the cooldown of the route, of the credential, or of both together; zero if there is none.
	CooldownUntil time.Time
	// score is that of the conversation.
	score float64
}

// Cooling reports whether the choice has a cooldown.
func (c *Choice) Cooling() bool { return !c.CooldownUntil.IsZero() }

func (c *Choice) pair() limitKey { return limitKey{c.ID, c.Credential.ID} }

// compare orders the choices of one priority.
func (c *Choice) compare(other *Choice) int {
	if by := c.CooldownUntil.Compare(other.CooldownUntil); by != 0 {
		return by
	}
	return cmp.Compare(other.score, c.score)
}

// CallsPerRoute is how many choices of a route Order returns at most: a second credential serves a request that the first
// one's limit or refusal has stopped; a third would keep the other routes waiting.
const CallsPerRoute = 2

// Order returns the choices among routes for a conversation, best first. Those with a cooldown come last, in the order in
// which their cooldowns end. It leaves out routes whose provider is under maintenance or whose breaker is open.
func (p *Picker) Order(routes []*catalog.Route, conversation uint64) []Choice {
	choices := make([]Choice, 0, CallsPerRoute*len(routes))
	now := p.now()
	p.mu.RLock()
	for _, r := range routes {
		if !r.Provider.Maintenance.Active(now) && p.breakers[r.ID].allows(now) {
			choices = p.appendBest(choices, r, conversation, now)
		}
	}
	p.mu.RUnlock()

	if len(choices) > 1 {
		slices.SortStableFunc(choices, func(a, b Choice) int {
			if a.CooldownUntil.Equal(b.CooldownUntil) {
				if by := cmp.Compare(a.Priority, b.Priority); by != 0 {
					return by
				}
			}
			return a.compare(&b)
		})
	}

	return choices
}

// appendBest appends the best choices of a route. The credentials of its provider share its weight. The caller holds the lock.
func (p *Picker) appendBest(choices []Choice, r *catalog.Route, conversation uint64, now time.Time) []Choice {
	credentials := r.Provider.Credentials
	weight := float64(max(r.Weight, 1)) / float64(len(credentials))
	ofRoute, first := p.until(r.ID, now), len(choices)
	place := fnv1a(conversation^fnvOffset, r.ID) * fnvPrime // a zero byte between the ids
	for _, credential := range credentials {
		c := Choice{
			Route:         r,
			Credential:    credential,
			CooldownUntil: latest(ofRoute, p.until(credential.ID, now)),
			score:         score(fnv1a(place, credential.ID), weight),
		}
		c.CooldownUntil = latest(c.CooldownUntil, p.pairUntil(c.pair(), now))
		at := len(choices)
		for at > first && c.compare(&choices[at-1]) < 0 {
			at--
		}
		if at-first == CallsPerRoute {
			continue
		}
		choices = append(choices[:min(len(choices), first+CallsPerRoute-1)], c)
		copy(choices[at+1:], choices[at:])
		choices[at] = c
	}
	return choices
}

// Prefer moves the choice of a route with a credential to the front, unless it has a cooldown.
func Prefer(choices []Choice, route, credential string) {
	i := slices.IndexFunc(choices, func(c Choice) bool { return c.ID == route && c.Credential.ID == credential && !c.Cooling() })
	if i > 0 {
		preferred := choices[i]
		copy(choices[1:i+1], choices[:i])
		choices[0] = preferred
	}
}

// Skipped returns the routes that are not among the choices, and those that come later because of a cooldown, with the
// reasons.
func (p *Picker) Skipped(routes []*catalog.Route, choices []Choice) []event.Attempt {
	var skipped []event.Attempt
	now := p.now()
	for _, r := range routes {
		if len(skipped) == event.MaxAttempts-1 { // the last is the call that answers
			break
		}
		i := slices.IndexFunc(choices, func(c Choice) bool { return c.ID == r.ID })
		switch {
		case i < 0:
			skipped = append(skipped, event.Attempt{Route: r.ID, Skipped: p.whySkipped(r, now)})
		case i > 0 && choices[i].Cooling():
			skipped = append(skipped, event.Attempt{Route: r.ID, Skipped: event.SkippedCooldown})
		}
	}
	return skipped
}

// WhySkipped returns the reason for which Order has left out a route, one of package event.
func (p *Picker) WhySkipped(r *catalog.Route) string { return p.whySkipped(r, p.now()) }

func (p *Picker) whySkipped(r *catalog.Route, now time.Time) string {
	switch {
	case r.Provider.Maintenance.Active(now):
		return event.SkippedMaintenance
	case len(r.Provider.Credentials) == 0:
		return event.SkippedNoCredential
	default:
		return event.SkippedBreaker
	}
}

const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

// fnv1a continues the FNV-1a hash x with a string.
func fnv1a(x uint64, s string) uint64 {
	for i := range len(s) {
		x = (x ^ uint64(s[i])) * fnvPrime
	}
	return x
}

// score implements weighted rendezvous hashing: each choice has the highest score for a share of the conversations in
// proportion to its weight, and removing a choice moves only its own conversations. x is the hash of the conversation and the
// choice.
func score(x uint64, weight float64) float64 {
	x ^= x >> 33 // spread the last bytes over all bits
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	unit := (float64(x>>11) + 0.5) / (1 << 53)
	return -weight / math.Log(unit)
}
