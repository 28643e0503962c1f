package admin

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"
)

// ErrLocked is returned for an address with too many failed attempts, or while there are too many
// failures overall.
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
	// All addresses together have a budget of failuresOverall failures, which grows by one every overallRefill. When
	// it is used up, each address has a single attempt.
	failuresOverall = 200
	overallRefill   = 500 * time.Millisecond
	// maxAddresses and maxGood bound the memory. A good token is remembered for goodFor.
	maxAddresses = 10_000
	maxGood      = 1_000
	goodFor      = time.Hour
)

// bucket is a token bucket of failures. It fills by one every refill interval, up to its size; the
// zero bucket is full.
type bucket struct {
	// full is the time at which the bucket is full again.
	full time.Time
}

// left returns the number of failures that are left.
func (b *bucket) left(now time.Time, size int, refill time.Duration) int {
	missing := b.full.Sub(now)
	if missing <= 0 {
		return size
	}
	return size - int((missing+refill-1)/refill)
}

// fail takes n failures out of the bucket, or all that are left.
func (b *bucket) fail(now time.Time, n, size int, refill time.Duration) {
	if b.full.Before(now) {
		b.full = now
	}
	b.full = b.full.Add(time.Duration(n) * refill)
	if most := now.Add(time.Duration(size) * refill); b.full.After(most) {
		b.full = most
	}
}

// Guard limits failed authentication attempts. A good token from an address without failures is
// never rejected. It is safe for concurrent use and bounded in memory; each replica has its own.
type Guard struct {
	now func() time.Time

	mu        sync.Mutex
	overall   bucket
	addresses map[netip.Prefix]bucket
	// good holds the times at which tokens were last accepted. Such a token is evaluated even if its address has failures
	// from other tokens.
	good map[Hash]time.Time
	// swept is the time of the last sweep of addresses.
	swept time.Time
}

// NewGuard returns a Guard that reads the time from now.
func NewGuard(now func() time.Time) *Guard {
	return &Guard{now: now, addresses: map[netip.Prefix]bucket{}, good: map[Hash]time.Time{}}
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

// Check returns a LockedError if the attempt must not be evaluated.
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

// Failed records a failed attempt. It returns a LockedError if there are so many failures overall
// that the address gets no second attempt.
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

// Good records that a token was accepted.
func (g *Guard) Good(token Hash) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, known := g.good[token]; !known && len(g.good) >= maxGood {
		for other := range g.good { // any entry: the token only loses its privilege
			delete(g.good, other)
			break
		}
	}
	g.good[token] = g.now()
}

// forget drops the addresses whose buckets are full, or else an arbitrary one.
func (g *Guard) forget(now time.Time) {
	if now.Sub(g.swept) >= addressRefill { // not for every failure of a flood
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
