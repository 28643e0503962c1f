// Package route owns the choice of the way to a provider: in which order the
// routes of a model are tried for an account, and which credential of the
// provider is used.
//
// Routes of the least priority number come first; among those of one priority
// the weights share out accounts, and an account stays with its route while
// the set of routes is the same, for the sake of prompt caches and encrypted
// reasoning. A route or credential that failed is set aside for a while, and
// others go before it. When nothing else is left, the one whose time is over
// first is tried all the same: one broken connection of a lone route must not
// turn everybody away. A route that goes on failing is another matter: its
// breaker opens, and nothing is sent there until one request has shown that it
// serves again. One whose provider limits us serves.
package route

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"modelgateway/dataplane/internal/catalog"
	"modelgateway/shared/lease"
)

// Picker orders routes and remembers which are set aside. It is safe for
// concurrent use.
type Picker struct {
	now func() time.Time

	mu    sync.RWMutex
	aside map[string]time.Time // by id of route or credential
	// refused says why providers refuse credentials, by id, until one serves again.
	refused map[string]string
	// breakers are those of routes that have failed, opened how often they did, by id.
	breakers map[string]breaker
	opened   map[string]int
}

// New returns a Picker. The clock is for tests; nil takes time.Now.
func New(now func() time.Time) *Picker {
	if now == nil {
		now = time.Now
	}
	return &Picker{now: now, aside: map[string]time.Time{}, refused: map[string]string{}, breakers: map[string]breaker{}, opened: map[string]int{}}
}

// SetAside keeps a route or credential from being chosen for a while, or for
// as long as was decided before if that is longer.
func (p *Picker) SetAside(id string, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	for other, until := range p.aside {
		if until.Before(now) {
			delete(p.aside, other)
		}
	}
	if until := now.Add(d); until.After(p.aside[id]) {
		p.aside[id] = until
	}
}

// Refuse sets a credential aside that its provider refuses, and notes why.
func (p *Picker) Refuse(id, reason string, d time.Duration) {
	p.SetAside(id, d)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused[id] = reason
}

// Restore forgets a setting aside that is over: the route or credential has
// served a request. One that still holds is left: the request began before it,
// and proves nothing.
func (p *Picker) Restore(id string) {
	p.mu.RLock()
	_, there := p.aside[id]
	_, refused := p.refused[id]
	p.mu.RUnlock()
	if !there && !refused {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now().After(p.aside[id]) {
		delete(p.aside, id)
		delete(p.refused, id)
	}
}

// Refused lists the credentials that were refused when they were tried last,
// and forgets those that are in use no more.
func (p *Picker) Refused(used func(id string) bool) []lease.RefusedCredential {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []lease.RefusedCredential
	for id, reason := range p.refused {
		if !used(id) {
			delete(p.refused, id)
			continue
		}
		found = append(found, lease.RefusedCredential{Credential: id, Reason: reason})
	}
	slices.SortFunc(found, func(a, b lease.RefusedCredential) int { return cmp.Compare(a.Credential, b.Credential) })
	return found
}

// restsUntil is when a route or credential may be chosen again; zero if it may
// be now.
func (p *Picker) restsUntil(id string) time.Time {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if until, there := p.aside[id]; there && !p.now().After(until) {
		return until
	}
	return time.Time{}
}

// lets tells whether the breaker of a route would let a request through.
func (p *Picker) lets(id string, now time.Time) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.breakers[id].lets(now)
}

// Choice is a route and the credential to use on it.
type Choice struct {
	*catalog.Route
	Secret catalog.Secret
}

// Order lists the choices among routes for an account, best first; none if the
// providers of all are under maintenance or their breakers open. With all of
// them set aside it is the one that is back first.
func (p *Picker) Order(routes []*catalog.Route, account string) []Choice {
	choices := make([]Choice, 0, len(routes))
	var last Choice
	var back time.Time
	now := p.now()
	for _, r := range routes {
		if r.Provider.Maintenance.Active(now) || !p.lets(r.ID, now) {
			continue
		}
		secret, until, ok := p.secret(r.Provider, account)
		if !ok {
			continue
		}
		if rests := p.restsUntil(r.ID); rests.After(until) {
			until = rests
		}
		switch {
		case until.IsZero():
			choices = append(choices, Choice{r, secret})
		case last.Route == nil || until.Before(back):
			last, back = Choice{r, secret}, until
		}
	}
	if len(choices) == 0 && last.Route != nil {
		return append(choices, last)
	}
	if len(choices) > 1 {
		slices.SortStableFunc(choices, func(a, b Choice) int {
			if c := cmp.Compare(a.Priority, b.Priority); c != 0 {
				return c
			}
			return cmp.Compare(score(account, b.ID, b.Weight), score(account, a.ID, a.Weight))
		})
	}
	return choices
}

// secret chooses a provider's credential for an account, the same while it is
// not set aside; with all of them set aside, the one that is back first, and
// when.
func (p *Picker) secret(provider *catalog.Provider, account string) (best catalog.Secret, until time.Time, ok bool) {
	top := math.Inf(-1)
	for _, s := range provider.Secrets {
		rests := p.restsUntil(s.ID)
		switch v := score(account, s.ID, 1); {
		case rests.IsZero() && (!ok || !until.IsZero() || v > top):
			best, until, top = s, time.Time{}, v
		case !rests.IsZero() && (!ok || rests.Before(until)):
			best, until = s, rests
		}
		ok = true
	}
	return best, until, ok
}

const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

// fnv1a goes on with the FNV-1a hash of a string.
func fnv1a(x uint64, s string) uint64 {
	for i := range len(s) {
		x = (x ^ uint64(s[i])) * fnvPrime
	}
	return x
}

// score is weighted rendezvous hashing: of several ids, each is the best for
// its weight's share of accounts, and taking one away moves only its own.
func score(account, id string, weight int) float64 {
	x := fnv1a(fnv1a(fnvOffset, account)*fnvPrime, id) // a zero byte between them
	x ^= x >> 33                                       // spread the last bytes over all bits
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	unit := (float64(x>>11) + 0.5) / (1 << 53)
	return -float64(max(weight, 1)) / math.Log(unit)
}
