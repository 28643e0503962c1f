package allocator

import "modelgateway/shared/wire"

// Pool is the state of one pool: one row in Postgres. Amounts are nano-units,
// or counts for slots.
type Pool struct {
	ID   wire.PoolID
	Kind wire.PoolKind
	// Account is the account that owns the pool.
	Account string
	// An Unlimited pool refuses nothing; its Total is zero, and Free falls below zero by the settled amount.
	Unlimited bool
	// Central means central mode: grants are exactly what is asked. Otherwise the pool is in escrow mode.
	Central bool
	// Generation counts the mode changes and the recalls.
	Generation int64
	// Total is the amount put into the pool, Free the part that is neither leased nor settled, Settled the part charged.
	Total, Free, Settled int64
	// EndMS is when the window of a limit ends whose pool it is, in milliseconds since 1970; zero: never, or another pool. Ended
	// means that it has: nothing is granted beyond the needs of requests that still count in it.
	EndMS int64
	Ended bool
	// RaisedBy is the part of Total by which the window was raised until RaisedUntilMS, in milliseconds since 1970; zero: it is not.
	RaisedBy, RaisedUntilMS int64
	// Overrun was charged beyond what had been granted, Late after the session had closed.
	Overrun, Late int64
}

// Outstanding returns the units that all leases of the pool hold together.
func (p *Pool) Outstanding() int64 { return p.Total - p.Free - p.Settled }

// Adjust adds an amount to the pool: a deposit, or a negative correction. After a
// negative correction that leaves little, the pool switches to central mode, because a
// request may be refused that idle units could cover. If much is left, none is, and
// proxies get idle units again with their next requests. Either way sessions return
// those that they hold when they learn of the change.
func (p *Pool) Adjust(amount int64) {
	p.Total += amount
	p.Free += amount
	if amount < 0 && !p.Central && !p.hasMuchLeft() {
		p.Central = true
		p.Generation++
	}
}

// hasMuchLeft reports whether a quarter of the units that are not charged yet is free.
func (p *Pool) hasMuchLeft() bool { return p.Free > (p.Total-p.Settled)/4 }

// Resize sets the total. Free follows; it falls below zero if more is settled
// or leased than the new total.
func (p *Pool) Resize(total int64) { p.Adjust(total - p.Total) }

// Raise sets the total. At a time it falls by raisedBy; both zero: it does not fall.
func (p *Pool) Raise(total, raisedBy, untilMS int64) {
	p.Resize(total)
	p.RaisedBy, p.RaisedUntilMS = raisedBy, untilMS
}

// EndRaise lowers the total by what it was raised, if the time for it has come.
func (p *Pool) EndRaise(nowMS int64) {
	if p.RaisedUntilMS != 0 && nowMS >= p.RaisedUntilMS {
		p.Raise(p.Total-p.RaisedBy, 0, 0)
	}
}

// idleUntilMS is when idle units must be returned, because the window ends or is lowered; zero: never.
func (p *Pool) idleUntilMS() int64 {
	if p.EndMS == 0 || p.RaisedUntilMS != 0 && p.RaisedUntilMS < p.EndMS {
		return p.RaisedUntilMS
	}
	return p.EndMS
}

// SetLimit sets a spend limit, or removes it if limit is nil. A lower one is like a negative correction.
func (p *Pool) SetLimit(limit *int64) {
	p.Unlimited = limit == nil
	total := int64(0)
	if limit != nil {
		total = *limit
	}
	p.Adjust(total - p.Total)
}

// EnterEscrow switches a central pool to escrow mode.
func (p *Pool) EnterEscrow() {
	if p.Central {
		p.Central = false
		p.Generation++
	}
}

// HasHeadroom reports whether so many units are free that each of n sessions may
// hold idle ones; need is the amount of a usual request. The free units are
// compared with those that are not charged yet, not with Total, which grows with
// every deposit.
func (p *Pool) HasHeadroom(n, need int64) bool {
	if p.Unlimited || p.Ended || (p.Kind == wire.Slots && p.Total < 10*n) {
		return false
	}
	return p.hasMuchLeft() && p.Free/8/max(n, 1) > need
}

// Lease is a session's share of one pool: three totals that only grow.
type Lease struct {
	Granted, Returned, Charged int64
	// RecalledGeneration is the newest generation whose recall the session has answered.
	RecalledGeneration int64
}

// Outstanding returns the units that the lease holds; it is never negative.
func (l *Lease) Outstanding() int64 { return l.Granted - l.Returned - l.Charged }

// LeaseKey identifies a lease.
type LeaseKey struct {
	Pool    wire.PoolID
	Session wire.SessionID
}

// coverOverrun grants the units that were charged or returned beyond the
// grants, so that Outstanding is never negative.
func coverOverrun(p *Pool, l *Lease) {
	missing := -l.Outstanding()
	if missing <= 0 {
		return
	}
	l.Granted += missing
	p.Free -= missing
	if !p.Unlimited {
		p.Overrun += missing
	}
}

// maxOutstanding bounds the outstanding units of a pool, and maxGranted all units that a session was ever granted of a
// pool: 2 and 4 billion currency units. A faulty proxy that asks for more and more would otherwise make the numbers
// overflow: those of a pool without a limit, or of any pool whose units it returns each time.
const (
	maxOutstanding = 1 << 61
	maxGranted     = 1 << 62
)

// mayGrant reports whether an amount on top of the units that a session was granted keeps within both bounds.
func mayGrant(p *Pool, granted, amount int64) bool {
	return amount <= maxOutstanding-p.Outstanding() && amount <= maxGranted-granted
}

// restoreGrants repeats the grants that a session has seen and Postgres has
// lost.
func restoreGrants(p *Pool, l *Lease, seen int64) {
	if seen <= l.Granted {
		return
	}
	before := min(p.Free, 0)
	p.Free -= seen - l.Granted
	l.Granted = seen
	if !p.Unlimited {
		p.Overrun += before - min(p.Free, 0)
	}
}

// AllotmentNeeds bounds an allotment to this multiple of the needs of the
// request, and allotmentShare to a share of the free units. It may be more for the
// target of a session; targetShare bounds the targets of all sessions together.
const (
	AllotmentNeeds = 256
	allotmentShare = 16
	targetShare    = 4
)

// allotment returns the units that are granted beyond a need, for requests to
// come.
func allotment(p *Pool, need, target int64) int64 {
	if p.Central || p.Ended {
		return 0
	}
	return max(min((p.Free-need)/allotmentShare, AllotmentNeeds*need), target, 0)
}
