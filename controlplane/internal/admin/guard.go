package admin

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"
)

// ErrLocked is returned for an address, or while there are so many failures
// from everywhere, that nothing is looked at for a while.
var ErrLocked = errors.New("admin: too many failed attempts")

// LockedError is ErrLocked with how long to wait.
type LockedError struct{ RetryAfter time.Duration }

// Error says how long to wait.
func (e *LockedError) Error() string { return fmt.Sprintf("%s: wait %s", ErrLocked, e.RetryAfter) }

// Unwrap returns ErrLocked.
func (e *LockedError) Unwrap() error { return ErrLocked }

const (
	// An address may fail failuresPerAddress times at once, and once more each addressRefill.
	failuresPerAddress = 10
	addressRefill      = 30 * time.Second
	// All addresses together may fail failuresOverall times at once, and once more each overallRefill. Beyond that, each
	// address has a single attempt.
	failuresOverall = 200
	overallRefill   = 500 * time.Millisecond
	// maxAddresses and maxGood bound what is remembered. A good token is remembered for goodFor.
	maxAddresses = 10_000
	maxGood      = 1_000
	goodFor      = time.Hour
)

// bucket holds the failures that are left. It fills by one each refill, up to
// its size; zero is a full one.
type bucket struct {
	// full is when it will be full again.
	full time.Time
}

// left is how many failures are left now.
func (b *bucket) left(now time.Time, size int, refill time.Duration) int {
	missing := b.full.Sub(now)
	if missing <= 0 {
		return size
	}
	return size - int((missing+refill-1)/refill)
}

// fail takes n failures out, as far as there are any.
func (b *bucket) fail(now time.Time, n, size int, refill time.Duration) {
	if b.full.Before(now) {
		b.full = now
	}
	b.full = b.full.Add(time.Duration(n) * refill)
	if most := now.Add(time.Duration(size) * refill); b.full.After(most) {
		b.full = most
	}
}

// Guard bounds how often access may be tried in vain. A good token from an
// address that has not failed is never refused. It is safe for concurrent use
// and bounded in memory; each replica has its own.
type Guard struct {
	now func() time.Time

	mu        sync.Mutex
	overall   bucket
	addresses map[netip.Prefix]bucket
	// good holds when tokens were last found good: they are looked at also from an address that others fail from.
	good map[Hash]time.Time
	// swept is when addresses were last looked through.
	swept time.Time
}

// NewGuard returns a Guard with a clock.
func NewGuard(now func() time.Time) *Guard {
	return &Guard{now: now, addresses: map[netip.Prefix]bucket{}, good: map[Hash]time.Time{}}
}

// network is what counts as one address: whoever has one address of IPv6 has
// a whole network of them.
func network(from netip.Addr) netip.Prefix {
	from = from.Unmap().WithZone("")
	bits := 64
	if from.Is4() {
		bits = 32
	}
	p, err := from.Prefix(bits)
	if err != nil { // the zero address: unknown callers are one
		return netip.Prefix{}
	}
	return p
}

// Check returns a LockedError if an attempt is not to be looked at.
func (g *Guard) Check(from netip.Addr, token Hash) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	if at, ok := g.good[token]; ok && now.Sub(at) < goodFor {
		return nil
	}
	b := g.addresses[network(from)]
	if b.left(now, failuresPerAddress, addressRefill) > 0 {
		return nil
	}
	return &LockedError{b.full.Sub(now) - (failuresPerAddress-1)*addressRefill}
}

// Failed notes a failed attempt. It returns a LockedError if there are so many
// from everywhere that the address gets no second one.
func (g *Guard) Failed(from netip.Addr, token Hash) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	delete(g.good, token)
	flooded := g.overall.left(now, failuresOverall, overallRefill) == 0
	g.overall.fail(now, 1, failuresOverall, overallRefill)
	at, n := network(from), 1
	if flooded {
		n = failuresPerAddress
	}
	b, known := g.addresses[at]
	if !known && len(g.addresses) >= maxAddresses {
		g.forget(now)
	}
	b.fail(now, n, failuresPerAddress, addressRefill)
	g.addresses[at] = b
	if flooded {
		return &LockedError{addressRefill}
	}
	return nil
}

// Good notes that a token is good.
func (g *Guard) Good(token Hash) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, known := g.good[token]; !known && len(g.good) >= maxGood {
		for other := range g.good { // any one: it only loses its privilege
			delete(g.good, other)
			break
		}
	}
	g.good[token] = g.now()
}

// forget drops the addresses that have nothing to answer for any more, or
// else any one.
func (g *Guard) forget(now time.Time) {
	if now.Sub(g.swept) >= addressRefill { // not at each failure of a flood
		g.swept = now
		for at, b := range g.addresses {
			if !b.full.After(now) {
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
