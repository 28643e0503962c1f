package allocator

import (
	"maps"
	"modelgateway/shared/wire"
	"slices"
)

// Stay is what a control plane notes of an op while the op waits in it. One is
// made for each copy of an op that comes, and kept until that is answered.
type PendingRequest struct {
	// Patient tells that the op may wait for running requests to make room.
	MayWait bool
	// Due tells that its time has come to be looked at: a recall that is not answered is sent again.
	ResendRecall bool
	// short holds the pools that were found short.
	short map[wire.PoolID]shortage
	// confirming tells that the op has waited for running requests, and only wants to be sure now; recalling that it was
	// for a recall that it waited last.
	confirming, recalling bool
}

// waits tells whether the op waits for running requests to make room.
func (s *PendingRequest) waitsForReturns() bool { return s.MayWait && !s.confirming }

// Clone is a copy, for a transaction that may be repeated.
func (s *PendingRequest) Clone() PendingRequest {
	c := *s
	c.short = maps.Clone(s.short)
	return c
}

// shortage says which recall of a pool an op waits for: the first that began
// after the op had come. What its own session holds idle it has told with the
// op, if it had answered the recall of own before.
type shortage struct{ gen, own int64 }

// note notes that a pool is found short. It returns true the first time.
func (s *PendingRequest) recordShortage(pool wire.PoolID, x shortage) (first bool) {
	if _, known := s.short[pool]; known {
		return false
	}
	if s.short == nil {
		s.short = map[wire.PoolID]shortage{}
	}
	s.short[pool] = x
	return true
}

// recall has the op wait for a recall. It returns false if that was what it
// waited for, and its patience is over.
func (s *PendingRequest) awaitRecall() (waits bool) {
	waits = s.MayWait || !s.recalling
	s.recalling = true
	return waits
}

// short lists the pools that have too little for the needs.
func (b *Allocator) short(needs []wire.Need, taken map[wire.PoolID]int64) []*Pool {
	var short []*Pool
	for _, n := range needs {
		if p := b.Pools[n.Pool]; p != nil && !p.Unlimited && p.Free-taken[n.Pool] < n.Amount {
			short = append(short, p)
		}
	}
	return short
}

// recall turns the pools central that the needs find short, and tells whether
// the recall of any of them is not answered yet. It is sent again when an op
// finds the pool short for the first time, and whenever it is due.
func (b *Allocator) recall(op *wire.LeaseRequest, needs []wire.Need, taken map[wire.PoolID]int64, stay *PendingRequest) bool {
	recalling := false
	for _, p := range b.short(needs, taken) {
		turned, x := !p.Central, shortage{gen: p.Generation + 1, own: p.Generation}
		if turned {
			p.Central, p.Generation, x.own = true, x.gen, x.gen
		}
		first := stay.recordShortage(p.ID, x)
		if !b.awaitsRecall(op, p, stay) {
			continue
		}
		if recalling = true; turned || first || stay.ResendRecall {
			b.Recalls[p.ID] = op.Account
		}
	}
	return recalling
}

// confirm recalls the pools once more that the needs find short, and tells
// whether that has to be answered: what has come back to a proxy before the op
// was sent may be on its way still, and a request that is refused for want of
// it is refused without cause. One recall does for all ops that came before it.
func (b *Allocator) confirm(op *wire.LeaseRequest, needs []wire.Need, taken map[wire.PoolID]int64, stay *PendingRequest) bool {
	stay.confirming = true
	begun := false
	for _, p := range b.short(needs, taken) {
		if p.Generation >= stay.short[p.ID].gen {
			continue
		}
		p.Generation++
		if b.awaitsRecall(op, p, stay) {
			b.Recalls[p.ID] = op.Account
			begun = true
		}
	}
	return begun
}

// awaits tells whether a recall is still to be answered before an op may be
// refused.
func (b *Allocator) awaitsRecall(op *wire.LeaseRequest, p *Pool, stay *PendingRequest) bool {
	if b.UnreadHolders[p.ID] {
		return true
	}
	return slices.ContainsFunc(b.unrecalled(p), func(s wire.SessionID) bool {
		if s != op.Session {
			return true
		}
		l := b.Leases[LeaseKey{p.ID, s}]
		return l == nil || l.RecalledGeneration < stay.short[p.ID].own || !told(op, p, l)
	})
}

// told tells whether an op says all that its session has been granted of a
// pool.
func told(op *wire.LeaseRequest, p *Pool, l *Lease) bool {
	return slices.ContainsFunc(op.Reports, func(v wire.LeaseReport) bool { return v.Pool == p.ID && v.GrantedSeen == l.Granted })
}

// unrecalled lists the live sessions that hold units of a pool and have not
// answered its last recall.
func (b *Allocator) unrecalled(p *Pool) []wire.SessionID {
	var sessions []wire.SessionID
	for key, l := range b.Leases {
		if key.Pool == p.ID && l.Outstanding() > 0 && l.RecalledGeneration < p.Generation && !b.EndedSessions[key.Session] {
			sessions = append(sessions, key.Session)
		}
	}
	for _, h := range b.Holders[p.ID] {
		if b.Leases[LeaseKey{p.ID, h.Session}] == nil && h.RecalledGeneration < p.Generation {
			sessions = append(sessions, h.Session)
		}
	}
	slices.Sort(sessions)
	return sessions
}

// ToRecall lists the recalls to be sent, by session.
func (b *Allocator) ToRecall() map[wire.SessionID][]wire.Recall {
	recalls := map[wire.SessionID][]wire.Recall{}
	for id, account := range b.Recalls {
		for _, s := range b.unrecalled(b.Pools[id]) {
			recalls[s] = append(recalls[s], wire.Recall{V: wire.Version, Account: account, Pool: id, Generation: b.Pools[id].Generation})
		}
	}
	return recalls
}
