package admin

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"
)

// ErrLocked is returned instead of ErrUnauthenticated and ErrExpired for an address with too many
// failed attempts.
var ErrLocked = errors.New("admin: too many failed attempts")

// LockedError is ErrLocked with the time to wait.
type LockedError struct{ RetryAfter time.Duration }

// Error returns the message with the time to wait.
func (e *LockedError) Error() string { return fmt.Sprintf("%s: wait %s", ErrLocked, e.RetryAfter) }

// Unwrap returns ErrLocked.
func (e *LockedError) Unwrap() error { return ErrLocked }

const (
	// An address has a budget of failuresPerAddress failures, which grows by one every addressRefill.
	failuresPerAddress = 10
	addressRefill      = 30 * time.Second
	// maxAddresses and maxAccepted bound the memory. An accepted token is remembered for acceptedFor.
	maxAddresses = 10_000
	maxAccepted  = 1_000
	acceptedFor  = time.Hour
	// maxLookups bounds the concurrent lookups of tokens that were not accepted within acceptedFor, so that a flood of
	// forged tokens leaves the database to the others.
	maxLookups = 4
)

// Guard answers failed authentication attempts and bounds their cost. It never rejects a valid
// token, whatever came from the same address before: a token has too many random bits to be
// guessed, and many clients can share an address. It is safe for concurrent use and bounded in
// memory; each replica has its own.
type Guard struct {
	now     func() time.Time
	lookups chan struct{}

	mu sync.Mutex
	// addresses holds the times at which the budgets of addresses are full again.
	addresses map[netip.Prefix]time.Time
	// accepted holds the times at which tokens were last accepted.
	accepted map[Hash]time.Time
	// swept is the time of the last sweep of addresses.
	swept time.Time
}

// NewGuard returns a Guard that reads the time from now.
func NewGuard(now func() time.Time) *Guard {
	return &Guard{
		now: now, lookups: make(chan struct{}, maxLookups), addresses: map[netip.Prefix]time.Time{}, accepted: map[Hash]time.Time{},
	}
}

// network returns the prefix that counts as one address: an IPv6 client usually has the addresses
// of a whole network.
func network(from netip.Addr) netip.Prefix {
	from = from.Unmap().WithZone("")
	bits := 64
	if from.Is4() {
		bits = 32
	}
	p, err := from.Prefix(bits)
	if err != nil { // the zero address: all unknown callers count as one
		return netip.Prefix{}
	}
	return p
}

// Enter waits until the token may be looked up. A token that was accepted lately does not wait.
// The caller must call leave if there is no error; the error is that of ctx.
func (g *Guard) Enter(ctx context.Context, token Hash) (leave func(), err error) {
	g.mu.Lock()
	at, known := g.accepted[token]
	known = known && g.now().Sub(at) < acceptedFor
	g.mu.Unlock()
	if known {
		return func() {}, nil
	}
	select {
	case g.lookups <- struct{}{}:
		return func() { <-g.lookups }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("admin: wait for the lookup of a token: %w", ctx.Err())
	}
}

// Failed records a failed attempt. It returns a LockedError if the address had used up its budget
// before.
func (g *Guard) Failed(from netip.Addr, token Hash) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	now, at := g.now(), network(from)
	delete(g.accepted, token)
	full, known := g.addresses[at]
	if !known && len(g.addresses) >= maxAddresses {
		g.forget(now)
	}
	if full.Before(now) {
		full = now
	}
	if missing := full.Sub(now); missing > (failuresPerAddress-1)*addressRefill {
		return &LockedError{missing - (failuresPerAddress-1)*addressRefill}
	}
	g.addresses[at] = full.Add(addressRefill)
	return nil
}

// Accepted records that a token was accepted.
func (g *Guard) Accepted(token Hash) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, known := g.accepted[token]; !known && len(g.accepted) >= maxAccepted {
		for other := range g.accepted { // any entry: the token only loses its privilege
			delete(g.accepted, other)
			break
		}
	}
	g.accepted[token] = g.now()
}

// forget drops the addresses whose budgets are full, or else an arbitrary one.
func (g *Guard) forget(now time.Time) {
	if now.Sub(g.swept) >= addressRefill { // not for every failure of a flood
		g.swept = now
		for at, full := range g.addresses {
			if !full.After(now) {
				delete(g.addresses, at)
			}
		}
	}
	for at := range g.addresses {
		if len(g.addresses) < maxAddresses {
			return
		}
		delete(g.addresses, at)
	}
}
