package allocator

import (
	"maps"
	"slices"

	"modelgateway/shared/wire"
)

// PendingRequest is the state that a control plane keeps of a lease request
// while the request waits for units to come back. There is one for each received
// copy of a lease request; it is dropped when the copy has its response.
type PendingRequest struct {
	// MayWait means that the request may wait until running requests return units.
	MayWait bool
	// ResendRecall means that recalls without an answer must be sent again.
	ResendRecall bool
	// short has the pools that had too few free units for the request.
	short map[wire.PoolID]shortage
	// inLastRecall means that the request no longer waits for running requests, but for the answers to a last recall.
	inLastRecall bool
	// recalling means that the request has last waited for the answers to a recall.
	recalling bool
}

// waitsForReturns reports whether the request waits for running requests to
// return units.
func (p *PendingRequest) waitsForReturns() bool { return p.MayWait && !p.inLastRecall }

// Clone returns a copy, for a transaction that may be repeated.
func (p *PendingRequest) Clone() PendingRequest {
	c := *p
	c.short = maps.Clone(p.short)
	return c
}

// shortage names the recalls of a pool that a request waits for. generation is
// the first recall that began after the request had come. ownGeneration is the
// last recall that the request's own session must have answered with a Return:
// the request itself answers later ones, because it reports the idle units of
// its session.
type shortage struct{ generation, ownGeneration int64 }

// recordShortage records that a pool is short. It reports whether this is the
// first time.
func (p *PendingRequest) recordShortage(pool wire.PoolID, x shortage) (first bool) {
	if _, known := p.short[pool]; known {
		return false
	}
	if p.short == nil {
		p.short = map[wire.PoolID]shortage{}
	}
	p.short[pool] = x
	return true
}

// awaitRecall makes the request wait for the answers to a recall. It returns
// false if the request has done so already and may not wait any longer.
func (p *PendingRequest) awaitRecall() (waits bool) {
	waits = p.MayWait || !p.recalling
	p.recalling = true
	return waits
}

// short lists the pools that have too few free units for the needs.
func (a *Allocator) short(needs []wire.Need, taken map[wire.PoolID]int64) []*Pool {
	var short []*Pool
	for _, n := range needs {
		if p := a.Pools[n.Pool]; p != nil && !p.Unlimited && p.Free-taken[n.Pool] < n.Amount {
			short = append(short, p)
		}
	}
	return short
}

// recall switches the pools that are short to central mode, and reports whether
// a session has not answered the recall of one of them yet. A recall is sent
// when a request finds the pool short for the first time, and again when
// pending.ResendRecall is set.
func (a *Allocator) recall(request *wire.LeaseRequest, needs []wire.Need, taken map[wire.PoolID]int64, pending *PendingRequest) bool {
	recalling := false
	for _, p := range a.short(needs, taken) {
		switched, x := !p.Central, shortage{generation: p.Generation + 1, ownGeneration: p.Generation}
		if switched {
			p.Central, p.Generation, x.ownGeneration = true, x.generation, x.generation
		}
		first := pending.recordShortage(p.ID, x)
		if !a.awaitsRecall(request, p, pending) {
			continue
		}
		if recalling = true; switched || first || pending.ResendRecall {
			a.Recalls[p.ID] = request.Account
		}
	}
	return recalling
}

// lastRecall recalls the pools that are short once more, and reports whether the
// request must wait for answers. Without it, a request could be refused although
// units that a proxy released before are still on their way in a Return. One
// recall serves all requests that came before it.
func (a *Allocator) lastRecall(request *wire.LeaseRequest, needs []wire.Need, taken map[wire.PoolID]int64, pending *PendingRequest) bool {
	pending.inLastRecall = true
	begun := false
	for _, p := range a.short(needs, taken) {
		if p.Generation >= pending.short[p.ID].generation {
			continue
		}
		p.Generation++
		if a.awaitsRecall(request, p, pending) {
			a.Recalls[p.ID] = request.Account
			begun = true
		}
	}
	return begun
}

// awaitsRecall reports whether a session that has not answered the pool's recall
// may hold idle units. The session of the request itself has answered by the
// request if its report has the current granted total.
func (a *Allocator) awaitsRecall(request *wire.LeaseRequest, p *Pool, pending *PendingRequest) bool {
	if a.UnreadHolders[p.ID] {
		return true
	}
	return slices.ContainsFunc(a.sessionsToRecall(p), func(s wire.SessionID) bool {
		if s != request.Session {
			return true
		}
		l := a.Leases[LeaseKey{p.ID, s}]
		return l == nil || l.RecalledGeneration < pending.short[p.ID].ownGeneration || !reportsGrants(request, p, l)
	})
}

// reportsGrants reports whether the request's session had seen all grants of the
// lease when it sent the request.
func reportsGrants(request *wire.LeaseRequest, p *Pool, l *Lease) bool {
	return slices.ContainsFunc(request.Reports, func(r wire.LeaseReport) bool { return r.Pool == p.ID && r.GrantedSeen == l.Granted })
}

// sessionsToRecall lists the live sessions that hold units of a pool and have
// not answered its newest recall.
func (a *Allocator) sessionsToRecall(p *Pool) []wire.SessionID {
	var sessions []wire.SessionID
	for key, l := range a.Leases {
		if key.Pool == p.ID && l.Outstanding() > 0 && l.RecalledGeneration < p.Generation && !a.EndedSessions[key.Session] {
			sessions = append(sessions, key.Session)
		}
	}
	for _, h := range a.Holders[p.ID] {
		if a.Leases[LeaseKey{p.ID, h.Session}] == nil && h.RecalledGeneration < p.Generation {
			sessions = append(sessions, h.Session)
		}
	}
	slices.Sort(sessions)
	return sessions
}

// ToRecall returns the recalls to send, by session.
func (a *Allocator) ToRecall() map[wire.SessionID][]wire.Recall {
	recalls := map[wire.SessionID][]wire.Recall{}
	for _, id := range slices.Sorted(maps.Keys(a.Recalls)) {
		account := a.Recalls[id]
		for _, s := range a.sessionsToRecall(a.Pools[id]) {
			recalls[s] = append(recalls[s], wire.Recall{
				V:          wire.Version,
				Account:    account,
				Pool:       id,
				Generation: a.Pools[id].Generation,
			})
		}
	}
	return recalls
}
