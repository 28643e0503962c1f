package admin

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"
)

const (
	// An address has a budget of failuresPerAddress failures, which grows by one every addressRefill.
	failuresPerAddress = 10
	addressRefill      = 30 * time.Second
	// maxAccepted bounds the memory. An accepted token is remembered for acceptedFor.
	maxAccepted = 1_000
	acceptedFor = time.Hour
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

	failures *Budget

	mu sync.Mutex
	// accepted holds the times at which tokens were last accepted.
	accepted map[Hash]time.Time
}

// NewGuard returns a Guard that reads the time from now.
func NewGuard(now func() time.Time) *Guard {
	return &Guard{
		now:      now,
		lookups:  make(chan struct{}, maxLookups),
		failures: NewBudget(now, failuresPerAddress, addressRefill),
		accepted: map[Hash]time.Time{},
	}
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
	delete(g.accepted, token)
	g.mu.Unlock()
	return g.failures.Spend(from)
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
