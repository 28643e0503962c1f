package admin

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"
)

// ErrLocked is returned for an address that has used up its budget of attempts. The guard returns it instead of
// ErrUnauthenticated and ErrExpired.
var ErrLocked = errors.New("admin: too many attempts")

// LockedError is ErrLocked with the time to wait.
type LockedError struct{ RetryAfter time.Duration }

// Error returns the message with the time to wait.
func (e *LockedError) Error() string { return fmt.Sprintf("%s: wait %s", ErrLocked, e.RetryAfter) }

// Unwrap returns ErrLocked.
func (e *LockedError) Unwrap() error { return ErrLocked }

// maxAddresses bounds the memory of a Budget.
const maxAddresses = 10_000

// Budget bounds how often each network address may do something that costs storage and needs no credential. It is safe
// for concurrent use and bounded in memory; each replica has its own.
type Budget struct {
	now    func() time.Time
	size   int
	refill time.Duration

	mu sync.Mutex
	// addresses holds the times at which the budgets of addresses are full again.
	addresses map[netip.Prefix]time.Time
	// swept is the time of the last sweep of addresses.
	swept time.Time
}

// NewBudget returns a Budget of size attempts for each address, which grows by one every refill. now is the clock.
func NewBudget(now func() time.Time, size int, refill time.Duration) *Budget {
	return &Budget{
		now:       now,
		size:      size,
		refill:    refill,
		addresses: map[netip.Prefix]time.Time{},
	}
}

// Spend takes one attempt from the budget of an address. It returns a LockedError if none is left.
func (b *Budget) Spend(from netip.Addr) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	now, at := b.now(), network(from)
	full, known := b.addresses[at]
	if !known && len(b.addresses) >= maxAddresses {
		b.forget(now)
	}
	if full.Before(now) {
		full = now
	}
	if missing, most := full.Sub(now), time.Duration(b.size-1)*b.refill; missing > most {
		return &LockedError{missing - most}
	}
	b.addresses[at] = full.Add(b.refill)
	return nil
}

// forget drops the addresses whose budgets are full, or else an arbitrary one.
func (b *Budget) forget(now time.Time) {
	if now.Sub(b.swept) >= b.refill { // not for every attempt of a flood
		b.swept = now
		for at, full := range b.addresses {
			if !full.After(now) {
				delete(b.addresses, at)
			}
		}
	}
	for at := range b.addresses {
		if len(b.addresses) < maxAddresses {
			return
		}
		delete(b.addresses, at)
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
