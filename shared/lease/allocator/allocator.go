package allocator

import "modelgateway/shared/wire"

// Pool is the state of one pool: one row in Postgres.
type Pool struct {
	ID   wire.PoolID
	Kind wire.Kind
	// Unlimited pools refuse nothing; their Total is zero and Free falls below it by what is settled.
	Unlimited bool
	// Central pools grant exactly what is asked.
	Central    bool
	Generation int64
	// Total is what the pool was given, Free what is neither leased nor settled, Settled what is charged for good.
	Total, Free, Settled int64
	// Overrun is what was charged beyond what had been granted, Late what was charged after its session's end.
	Overrun, Late int64
}

// Held is what all leases hold together.
func (p *Pool) Outstanding() int64 { return p.Total - p.Free - p.Settled }

// Lease is what one session holds of one pool: three totals that only grow.
type Lease struct {
	Granted, Returned, Charged int64
	// RecalledGen is the newest generation whose recall the session has answered.
	RecalledGeneration int64
}

// Outstanding is what the lease holds; never negative.
func (l *Lease) Outstanding() int64 { return l.Granted - l.Returned - l.Charged }

// LeaseKey names a lease.
type LeaseKey struct { //nolint:revive // a Key is something else here
	Pool    wire.PoolID
	Session wire.SessionID
}

// Book is the control plane's side of the protocol, over the pools and leases
// that one transaction has locked. Its methods change them in place; the
// caller loads them before and writes them after.
//
// A pool that a message names and the Book does not hold is ignored in
// reports, and refused as spent in requests.
type Allocator struct {
	Pools  map[wire.PoolID]*Pool
	Leases map[LeaseKey]*Lease
	// Holders are the live sessions that hold units of a pool, beside those of Leases: a session that is over can idle
	// nothing that anyone could get. The caller fills it in for every pool that is not central, and for those that
	// the transaction finds short; Unread are the others.
	Holders       map[wire.PoolID][]LiveLease
	UnreadHolders map[wire.PoolID]bool
	// Over holds the sessions of Leases that are not live.
	EndedSessions map[wire.SessionID]bool
	// Recalls collects, by pool, the account whose requests need it back. The caller sends ToRecall after its commit.
	Recalls map[wire.PoolID]string
}

// Holding is a live session's lease as far as recalls go.
type LiveLease struct {
	Session            wire.SessionID
	RecalledGeneration int64
}

// NewBook returns an empty Book.
func New() *Allocator {
	return &Allocator{
		Pools: map[wire.PoolID]*Pool{}, Leases: map[LeaseKey]*Lease{}, Holders: map[wire.PoolID][]LiveLease{}, UnreadHolders: map[wire.PoolID]bool{},
		EndedSessions: map[wire.SessionID]bool{}, Recalls: map[wire.PoolID]string{},
	}
}

func (b *Allocator) lease(p *Pool, s wire.SessionID) *Lease {
	key := LeaseKey{p.ID, s}
	l := b.Leases[key]
	if l == nil {
		l = &Lease{RecalledGeneration: p.Generation}
		b.Leases[key] = l
	}
	return l
}

// cover grants afterwards what a lease was charged or returned beyond its
// grants, so that Outstanding never is negative.
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

// restate grants anew what a session has seen granted and Postgres has lost.
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

// Report takes in what a session says of its leases. Totals are merged by the
// greater one on both sides: the session may know of grants that Postgres has
// lost.
func (b *Allocator) ApplyReports(s wire.SessionID, views []wire.LeaseReport) {
	for _, v := range views {
		p := b.Pools[v.Pool]
		if p == nil || (b.Leases[LeaseKey{v.Pool, s}] == nil && v.GrantedSeen <= 0) {
			continue
		}
		l := b.lease(p, s)
		restoreGrants(p, l, v.GrantedSeen)
		if v.Returned > l.Returned {
			p.Free += v.Returned - l.Returned
			l.Returned = v.Returned
			coverOverrun(p, l)
		}
		if v.Generation >= p.Generation && v.GrantedSeen == l.Granted && l.RecalledGeneration < p.Generation {
			l.RecalledGeneration = p.Generation
		}
	}
}

// Op decides a session's waiting requests in their order, or returns false when
// it is to be asked again later, with the same Stay: no request is refused as
// long as waiting may cure it.
//
// A patient op waits while running requests could still make room: it is asked
// again when something was returned, or without patience. What this very op
// would be granted does not count as running: it cannot come back before the
// answer.
//
// Where a request would be refused while a live session may hold idle units
// of the pool, or have them on their way back, those are recalled first: nothing
// is granted, and the reply is Wait, which is no result to be kept. An op that
// has waited for that, and is without patience, counts as decided by it.
//
// An op that is sent ahead gets a slice or nothing, at once: for its sake
// nothing is recalled, and nothing is taken from a central pool.
func (b *Allocator) Decide(op *wire.LeaseRequest, stay *PendingRequest) (wire.LeaseResponse, bool) {
	b.ApplyReports(op.Session, op.Reports)
	decisions := make([]wire.Decision, len(op.Needs))
	if op.Prefetch && !b.canPrefetch(op.Needs) {
		return wire.LeaseResponse{V: wire.Version, Number: op.Number, Status: wire.Done, Decisions: decisions, Leases: b.leaseStates(op)}, true
	}
	taken := map[wire.PoolID]int64{}
	recalling, short := false, false
	for i, needs := range op.Needs {
		d, curable := b.decide(needs, taken)
		if curable && b.recall(op, needs, taken, stay) {
			recalling = true
			continue
		}
		if curable && !recalling && stay.waitsForReturns() {
			stay.recalling = false
			return wire.LeaseResponse{}, false
		}
		if curable && !stay.waitsForReturns() && b.confirm(op, needs, taken, stay) {
			recalling = true
			continue
		}
		decisions[i] = d
		short = short || !d.Granted
		if d.Granted {
			for _, n := range needs {
				taken[n.Pool] += n.Amount
			}
		}
	}
	if recalling {
		return wire.LeaseResponse{V: wire.Version, Number: op.Number, Status: wire.Wait}, !stay.awaitRecall()
	}
	for pool, amount := range taken {
		p := b.Pools[pool]
		if !short { // who is refused has nothing put aside for later
			amount += allotment(p, amount)
		}
		b.lease(p, op.Session).Granted += amount
		p.Free -= amount
	}
	return wire.LeaseResponse{V: wire.Version, Number: op.Number, Status: wire.Done, Decisions: decisions, Leases: b.leaseStates(op)}, true
}

// spares tells whether pools have enough free for requests, and sessions may
// hold idle units of them.
func (b *Allocator) canPrefetch(requests [][]wire.Need) bool {
	taken := map[wire.PoolID]int64{}
	for _, needs := range requests {
		for _, n := range needs {
			p := b.Pools[n.Pool]
			if taken[n.Pool] += n.Amount; p == nil || p.Central || p.Free < taken[n.Pool] {
				return false
			}
		}
	}
	return true
}

// sliceNeeds is how many times what an op needs a slice is at most, and
// sliceShare the share of what is free.
const (
	AllotmentNeeds = 256
	allotmentShare = 16
)

// slice is what is granted on top of a need, for requests to come.
func allotment(p *Pool, need int64) int64 {
	if p.Central {
		return 0
	}
	return max(min((p.Free-need)/allotmentShare, AllotmentNeeds*need), 0)
}

// Relax lets sessions hold idle units of a central pool.
func (p *Pool) EnterEscrow() {
	if p.Central {
		p.Central = false
		p.Generation++
	}
}

// Roomy tells whether a pool has so much free that n sessions may hold idle
// units of it, when a request needs as much as need. Limits of keys never are:
// they are small, and exact to the end.
func (p *Pool) HasHeadroom(n, need int64) bool {
	if p.Kind == wire.KeyLimit || p.Unlimited || (p.Kind == wire.Slots && p.Total < 10*n) {
		return false
	}
	return p.Free > p.Total/4 && p.Free/8/max(n, 1) > need
}

// decide tells whether the needs fit beside what is taken already, and if not,
// the reason that is reported first, and whether a return could cure it.
func (b *Allocator) decide(needs []wire.Need, taken map[wire.PoolID]int64) (worst wire.Decision, curable bool) {
	worst = wire.Decision{Granted: true}
	for _, n := range needs {
		d := b.refusal(n, taken[n.Pool])
		if !d.Granted && (worst.Granted || rank[d.Reason] < rank[worst.Reason]) {
			worst = d
			curable = d.Reserved > taken[n.Pool] && d.Reason != wire.KeyLimitSpent && d.Reason != wire.BalanceSpent
		}
	}
	return worst, curable
}

var rank = map[wire.Reason]int{wire.KeyLimitSpent: 0, wire.BalanceSpent: 1, wire.NoSlot: 2, wire.KeyLimitReserved: 3, wire.BalanceReserved: 4}

func (b *Allocator) refusal(n wire.Need, taken int64) wire.Decision {
	p := b.Pools[n.Pool]
	switch {
	case n.Amount < 0 || p == nil || p.Kind != n.Kind:
		return wire.Decision{Reason: reason(n.Kind, true)}
	case p.Unlimited || p.Free-taken >= n.Amount:
		return wire.Decision{Granted: true}
	}
	spent := p.Total-p.Settled < n.Amount
	return wire.Decision{Reason: reason(p.Kind, spent), Free: p.Free - taken, Reserved: p.Outstanding() + taken}
}

func reason(k wire.Kind, spent bool) wire.Reason {
	switch {
	case k == wire.Slots:
		return wire.NoSlot
	case k == wire.KeyLimit && spent:
		return wire.KeyLimitSpent
	case k == wire.KeyLimit:
		return wire.KeyLimitReserved
	case spent:
		return wire.BalanceSpent
	default:
		return wire.BalanceReserved
	}
}

// grants tells the state of every lease that the op names.
func (b *Allocator) leaseStates(op *wire.LeaseRequest) []wire.LeaseState {
	var grants []wire.LeaseState
	seen := map[wire.PoolID]bool{}
	add := func(id wire.PoolID) {
		p, l := b.Pools[id], b.Leases[LeaseKey{id, op.Session}]
		if p == nil || l == nil || seen[id] {
			return
		}
		seen[id] = true
		grants = append(grants, wire.LeaseState{Pool: id, Granted: l.Granted, Generation: p.Generation, Central: p.Central})
	}
	for _, v := range op.Reports {
		add(v.Pool)
	}
	for _, needs := range op.Needs {
		for _, n := range needs {
			add(n.Pool)
		}
	}
	return grants
}

// Charge books a settled cost. It always lands: a cost beyond what was
// granted is granted afterwards, and a cost of a closed session comes out of
// what is free.
func (b *Allocator) Charge(s wire.SessionID, closed bool, pool wire.PoolID, cost int64) {
	p := b.Pools[pool]
	if p == nil || cost <= 0 {
		return
	}
	p.Settled += cost
	l := b.Leases[LeaseKey{pool, s}]
	switch {
	case closed:
		p.Free -= cost
		if !p.Unlimited {
			p.Late += cost
		}
	case l == nil && p.Unlimited:
		p.Free -= cost
	default:
		l = b.lease(p, s)
		l.Charged += cost
		coverOverrun(p, l)
	}
}

// Close gives back whatever the session's leases still hold.
func (b *Allocator) CloseSession(s wire.SessionID) {
	for key, l := range b.Leases {
		if key.Session != s {
			continue
		}
		rest := l.Outstanding()
		l.Returned += rest
		b.Pools[key.Pool].Free += rest
	}
}
