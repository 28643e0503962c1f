// Package allocator decides lease requests on the control plane, over the pools
// and leases that one database transaction has locked.
//
// A refusal is decided only here, and only when no reachable live session holds
// idle units of the pool (invariant I5). For every pool, at all times:
// Total = Free + the outstanding units of all leases + Settled (I1), and no
// lease has negative outstanding units.
//
// A lease request on its way:
//
//	Batcher.AddRequest   it waits for the next batch, with the function that sends its response
//	Batcher.Next         a Transaction of some messages, whose pools and leases the caller locks and reads
//	Batch.Decide         granted, refused, or pending while returned units could prevent a refusal
//	Batcher.Commit       after the commit: the responses and recalls to send
//
// An example: 50 of a balance are free, proxy A holds 40 idle units, and a request at proxy B needs 80. The pool leaves
// escrow mode, A gets a recall, and the request is pending. A returns its 40 with totals of the new generation: 90 are
// free, B gets exactly 80, and nothing on top. Had A used its units, the request would have been refused (402), after a last
// recall that began later than the request. Until A has answered or its session has ended, there is no decision, and
// B's proxy repeats the request.
//
// All needs of one request are granted together or not at all. EscrowPolicy lets a pool with headroom enter escrow mode
// again. Batches of different replicas meet in the locks of Postgres only; the package has no lock, clock or I/O.
package allocator

import "modelgateway/shared/wire"

// Allocator decides over the pools and leases of one transaction. Its methods
// change them in place; the caller loads them before and writes them after.
//
// A report about a pool that is not in Pools is ignored; a need of such a pool
// is refused as if the pool were spent.
type Allocator struct {
	Pools  map[wire.PoolID]*Pool
	Leases map[LeaseKey]*Lease
	// Holders lists the live sessions that hold units of a pool, besides those in Leases. The caller reads them for
	// every pool in escrow mode and for every pool that turns out to be short; UnreadHolders marks the pools whose
	// holders were not read.
	Holders       map[wire.PoolID][]LiveLease
	UnreadHolders map[wire.PoolID]bool
	// Moved has the pools of windows in which no request may count now, each with the pool of the window in which it has to.
	Moved map[wire.PoolID]wire.PoolID
	// Live is the number of live proxies, which share the units that may be held for their targets.
	Live int64
	// EndedSessions marks the sessions in Leases that are not live: their idle units cannot be recalled.
	EndedSessions map[wire.SessionID]bool
	// Recalls has the pools to recall, each with the account whose request is short of units. The caller sends the
	// messages of ToRecall after its commit.
	Recalls map[wire.PoolID]string
}

// LiveLease is the part of a live session's lease that recalls depend on.
type LiveLease struct {
	Session            wire.SessionID
	RecalledGeneration int64
}

// New returns an empty Allocator.
func New() *Allocator {
	return &Allocator{
		Pools:         map[wire.PoolID]*Pool{},
		Leases:        map[LeaseKey]*Lease{},
		Holders:       map[wire.PoolID][]LiveLease{},
		UnreadHolders: map[wire.PoolID]bool{},
		EndedSessions: map[wire.SessionID]bool{},
		Recalls:       map[wire.PoolID]string{},
	}
}

func (a *Allocator) lease(p *Pool, s wire.SessionID) *Lease {
	key := LeaseKey{p.ID, s}
	l := a.Leases[key]
	if l == nil {
		l = &Lease{RecalledGeneration: p.Generation}
		a.Leases[key] = l
	}
	return l
}

// ApplyReports merges a session's reports into its leases. Totals are merged by
// the greater value on both sides: the session may know of grants that Postgres
// has lost.
func (a *Allocator) ApplyReports(s wire.SessionID, reports []wire.LeaseReport) {
	for _, v := range reports {
		p := a.Pools[v.Pool]
		if p == nil || (a.Leases[LeaseKey{v.Pool, s}] == nil && v.GrantedSeen <= 0) {
			continue
		}
		l := a.lease(p, s)
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

// Decide decides the waiting requests of a session in their order. It returns
// false if the lease request must be decided later, with the same pending state:
// no request is refused while units that come back may still allow it.
//
// While pending.MayWait is set, the decision waits until running requests have
// returned units. Units that this lease request itself would be granted do not
// count, because they cannot be returned before its response.
//
// If a request would be refused while a live session may hold idle units of the
// pool, or may have sent a Return that has not arrived, those units are recalled
// first: nothing is granted, and the response is Wait, which is not stored as a
// result. A lease request that has waited for a recall, and may not wait any
// longer, is decided without the missing answers to the recall.
func (a *Allocator) Decide(request *wire.LeaseRequest, pending *PendingRequest) (wire.LeaseResponse, bool) {
	a.ApplyReports(request.Session, request.Reports)
	decisions := make([]wire.Decision, len(request.Needs))
	taken := map[wire.PoolID]int64{}
	recalling, short := false, false
	for i, needs := range request.Needs {
		d, preventable := a.decide(needs, taken)
		if preventable && a.recall(request, needs, taken, pending) {
			recalling = true
			continue
		}

		if preventable && !recalling && pending.waitsForReturns() {
			pending.recalling = false
			return wire.LeaseResponse{}, false
		}

		if preventable && !pending.waitsForReturns() && a.lastRecall(request, needs, taken, pending) {
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
		return wire.LeaseResponse{V: wire.Version, Number: request.Number, Status: wire.Wait}, !pending.awaitRecall()
	}

	allotments := map[wire.PoolID]int64{}
	if !short { // no allotments while a request is refused
		allotments = a.allot(request, taken)
	}

	for pool, amount := range taken {
		p := a.Pools[pool]
		a.lease(p, request.Session).Granted += amount
		p.Free -= amount
	}

	return wire.LeaseResponse{
		V:         wire.Version,
		Number:    request.Number,
		Status:    wire.Done,
		Decisions: decisions,
		Leases:    a.leaseStates(request, allotments),
	}, true
}

// allot returns the allotments of a session that is granted the units in taken, and
// adds to these what the session lacks of them.
func (a *Allocator) allot(request *wire.LeaseRequest, taken map[wire.PoolID]int64) map[wire.PoolID]int64 {
	allotments := make(map[wire.PoolID]int64, len(taken))
	idle := map[wire.PoolID]int64{}
	target := map[wire.PoolID]int64{}
	for _, v := range request.Reports {
		p := a.Pools[v.Pool]
		idle[v.Pool] = max(v.Idle, 0) // a negative number would be granted on top
		if p == nil || p.Central || p.Ended || v.Target <= 0 {
			continue
		}
		target[v.Pool] = v.Target
		if _, needed := taken[v.Pool]; !needed && a.Leases[LeaseKey{v.Pool, request.Session}] != nil {
			taken[v.Pool] = 0
		}
	}

	for pool, amount := range taken {
		p := a.Pools[pool]
		allotments[pool] = allotment(p, amount, min(target[pool], (p.Free-amount)/targetShare/max(a.Live, 1)))
		lacking := max(allotments[pool]-idle[pool], 0)
		if mayGrant(p, a.lease(p, request.Session).Granted, amount+lacking) {
			taken[pool] += lacking
		}
	}

	return allotments
}

// Settled lists the reported leases that hold nothing, because all charges that
// the session reports are settled.
func (a *Allocator) Settled(s wire.SessionID, reports []wire.LeaseReport) []wire.PoolID {
	var settled []wire.PoolID
	for _, v := range reports {
		if l := a.Leases[LeaseKey{v.Pool, s}]; l != nil && l.Outstanding() == 0 && l.Returned == v.Returned && l.Charged == v.Charged {
			settled = append(settled, v.Pool)
		}
	}
	return settled
}

// decide reports whether the needs of one request fit, after the units in taken
// for the requests before it. If not, it returns the refusal whose reason is
// reported first, and whether returned units could prevent it.
func (a *Allocator) decide(needs []wire.Need, taken map[wire.PoolID]int64) (worst wire.Decision, preventable bool) {
	worst = wire.Decision{Granted: true}
	for _, n := range needs {
		if right, moved := a.Moved[n.Pool]; moved { // whatever else is short: the other windows are not decided about
			return wire.Decision{Reason: wire.WrongWindow, Pool: right}, false
		}
		d := a.refusal(n, taken[n.Pool])
		if !d.Granted && (worst.Granted || rank[d.Reason] < rank[worst.Reason]) {
			worst = d
			preventable = d.Reserved > taken[n.Pool] && d.Reason != wire.LimitInsufficient && d.Reason != wire.BalanceInsufficient
			worst.Pool = n.Pool
		}
	}
	return worst, preventable
}

// Judge returns the decision about the needs of one request with the pools as they are, as Decide makes it when no units
// can come back.
func (a *Allocator) Judge(needs []wire.Need) wire.Decision {
	d, _ := a.decide(needs, nil)
	return d
}

// exceedsTotals reports whether a request that is granted in full would exceed what a pool or a lease can hold. A need that
// a limited pool refuses anyway does not count.
func (a *Allocator) exceedsTotals(request *wire.LeaseRequest) bool {
	sum := map[wire.PoolID]int64{}
	for _, needs := range request.Needs {
		for _, n := range needs {
			p := a.Pools[n.Pool]
			if p == nil || n.Amount <= 0 || (!p.Unlimited && n.Amount > p.Free) {
				continue
			}
			if n.Amount > maxOutstanding-sum[n.Pool] {
				return true
			}
			sum[n.Pool] += n.Amount
		}
	}

	for pool, amount := range sum {
		p, granted := a.Pools[pool], int64(0)
		if !p.Unlimited {
			amount = min(amount, p.Free)
		}
		if l := a.Leases[LeaseKey{pool, request.Session}]; l != nil {
			granted = l.Granted
		}
		if !mayGrant(p, granted, amount) {
			return true
		}
	}

	return false
}

var rank = map[wire.RefusalReason]int{
	wire.LimitInsufficient:   0,
	wire.BalanceInsufficient: 1,
	wire.NoSlot:              2,
	wire.LimitReserved:       3,
	wire.BalanceReserved:     4,
}

func (a *Allocator) refusal(n wire.Need, taken int64) wire.Decision {
	p := a.Pools[n.Pool]
	switch {
	case n.Amount < 0 || p == nil || p.Kind != n.Kind:
		return wire.Decision{Reason: reason(n.Kind, true)}
	case p.Unlimited || p.Free-taken >= n.Amount:
		return wire.Decision{Granted: true}
	}
	spent := p.Total-p.Settled < n.Amount
	return wire.Decision{Reason: reason(p.Kind, spent), Free: p.Free - taken, Reserved: p.Outstanding() + taken}
}

func reason(k wire.PoolKind, spent bool) wire.RefusalReason {
	switch {
	case k == wire.Slots:
		return wire.NoSlot
	case k == wire.Limit && spent:
		return wire.LimitInsufficient
	case k == wire.Limit:
		return wire.LimitReserved
	case spent:
		return wire.BalanceInsufficient
	default:
		return wire.BalanceReserved
	}
}

// leaseStates returns the state of every lease that the request names.
func (a *Allocator) leaseStates(request *wire.LeaseRequest, allotments map[wire.PoolID]int64) []wire.LeaseState {
	var leases []wire.LeaseState
	seen := map[wire.PoolID]bool{}
	add := func(id wire.PoolID) {
		p, l := a.Pools[id], a.Leases[LeaseKey{id, request.Session}]
		if p == nil || l == nil || seen[id] {
			return
		}
		seen[id] = true
		leases = append(leases, wire.LeaseState{
			Pool:       id,
			Granted:    l.Granted,
			Generation: p.Generation,
			Central:    p.Central,
			Allotment:  allotments[id],
			EndMS:      p.EndMS,
			IdleUntil:  p.idleUntilMS(),
			Returned:   l.Returned,
			Charged:    l.Charged,
		})
	}

	for _, v := range request.Reports {
		add(v.Pool)
	}

	for _, needs := range request.Needs {
		for _, n := range needs {
			add(n.Pool)
		}
	}

	return leases
}

// Charge books a settled cost. It always succeeds: the part of a cost beyond the
// grants is granted now and counted as overrun, and the cost of a closed session
// is taken from the free units.
func (a *Allocator) Charge(s wire.SessionID, closed bool, pool wire.PoolID, cost int64) {
	p := a.Pools[pool]
	if p == nil || cost <= 0 {
		return
	}

	p.Settled += cost
	l := a.Leases[LeaseKey{pool, s}]
	switch {
	case closed:
		p.Free -= cost
		if !p.Unlimited {
			p.Late += cost
		}
	case l == nil && p.Unlimited:
		p.Free -= cost
	default:
		l = a.lease(p, s)
		l.Charged += cost
		coverOverrun(p, l)
	}
}

// CloseSession returns all outstanding units of the session's leases.
func (a *Allocator) CloseSession(s wire.SessionID) {
	for key, l := range a.Leases {
		if key.Session != s {
			continue
		}
		outstanding := l.Outstanding()
		l.Returned += outstanding
		a.Pools[key.Pool].Free += outstanding
	}
}
