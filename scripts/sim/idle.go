package sim

import (
	"slices"
	"time"

	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

// checkIdle checks the account queues of all running proxies: when a request is
// refused because a pool has too few units, no queue may hold idle units of that
// pool. Units of a grant whose response has not arrived are not idle.
//
// Pools that were ever without a limit are skipped, because proxies did not count
// their charges at that time.
func (w *world) checkIdle(batch *allocator.Batch, pool wire.PoolID, request *wire.LeaseRequest, reply *wire.LeaseResponse) {
	if w.oracle.everUnlimited[pool] {
		return
	}
	for _, p := range w.proxies {
		if !p.alive {
			continue
		}
		for _, q := range p.allQueues {
			// A recall does not reach the units of an earlier process, as little as if there were none to resume its session.
			if q.account == request.Account && !q.resumed && w.oracle.server[q.session] == w.pg.server {
				w.checkIdleOf(q, batch, pool, request, reply)
			}
		}
	}
}

// checkEndedQueue checks that the queue of an ended session holds no idle units. No
// recall would reach it, so they would not be returned.
func (w *world) checkEndedQueue(q *accountQueue) {
	for _, pool := range q.pools() {
		at := q.queue.LeaseView(pool)
		if idle := at.Granted - at.Returned - at.Charged - at.Running; idle > 0 {
			w.fail("I5: the ended session %d holds %d idle units of pool %d: holder %+v", q.session, idle, pool, at)
		}
	}
}

func (w *world) checkIdleOf(
	q *accountQueue,
	batch *allocator.Batch,
	pool wire.PoolID,
	request *wire.LeaseRequest,
	reply *wire.LeaseResponse,
) {
	t := w.pg.sessions[q.session]
	if t == nil || t.state != session.Active || t.until < w.pg.now(w) {
		return
	}

	l := batch.Allocator.Leases[allocator.LeaseKey{Pool: pool, Session: q.session}]
	if l == nil {
		l = w.pg.leases[pool][q.session]
	}
	if l == nil {
		return
	}

	at := q.queue.LeaseView(pool)
	used := at.Returned + at.Charged + at.Running
	if at.Granted == 0 { // a lease that the proxy has forgotten, or does not know yet
		used = l.Returned + l.Charged
	}
	if answer := w.lastAnswer(batch, q, request, reply); answer != nil {
		used += grantedFrom(q.request, answer, pool, 0)
	}

	// Units that are returned to a lease with an overrun cover the overrun first.
	if back := min(w.returnedBefore(request, q.session, pool)-l.Returned, l.Outstanding()); back > 0 {
		w.fail("I5: refused because of pool %d while %d units that session %d returned before are in transit", pool, back, q.session)
	}

	if idle := min(l.Granted-used, l.Outstanding()); idle > 0 {
		w.fail("I5: refused because of pool %d while session %d holds %d idle units: lease %+v, holder %+v, pool %+v",
			pool, q.session, idle, *l, at, *batch.Allocator.Pools[pool])
	}
}

// returnedSoFar returns the returned totals of each session for the pools that a
// lease request needs.
func (w *world) returnedSoFar(request *wire.LeaseRequest) map[wire.SessionID]map[wire.PoolID]int64 {
	returned := map[wire.SessionID]map[wire.PoolID]int64{}
	for _, p := range w.proxies {
		q := p.queues[request.Account]
		if !p.alive || q == nil {
			continue
		}
		returned[q.session] = map[wire.PoolID]int64{}
		for _, needs := range request.Needs {
			for _, n := range needs {
				returned[q.session][n.Pool] = q.queue.LeaseView(n.Pool).Returned
			}
		}
	}
	return returned
}

// returnedBefore returns the returned total of a session when an outstanding lease
// request was made.
func (w *world) returnedBefore(request *wire.LeaseRequest, session wire.SessionID, pool wire.PoolID) int64 {
	if p := w.oracle.owner[request.Session]; p != nil {
		if q := p.queues[request.Account]; q != nil && q.request == request {
			return q.returnedBefore[session][pool]
		}
	}
	return 0
}

// checkNothingHeld checks, after all faults and the last request have ended, that no
// session of a running process in one of the states holds units: active sessions some
// seconds later, fenced ones when they must be closed.
func (w *world) checkNothingHeld(states ...session.State) {
	for _, pool := range sortedKeys(w.pg.leases) {
		for _, id := range sortedKeys(w.pg.leases[pool]) {
			l, p, t := w.pg.leases[pool][id], w.oracle.owner[id], w.pg.sessions[id]
			if p == nil || t == nil || !slices.Contains(states, t.state) || w.oracle.everUnlimited[pool] {
				continue
			}
			if own := p.usage.Session(id); own != nil && own.BootID == p.boot && own.Running == 0 && l.Outstanding() > 0 {
				w.fail("I8: session %d of %s runs nothing and holds %d of pool %d: %+v", id, p.name, l.Outstanding(), pool, *l)
			}
		}
	}
}

// checkEscrowAgain checks that pools with headroom are in escrow mode after some
// seconds of small requests, whatever happened before.
func (w *world) checkEscrowAgain() {
	if w.profile.HeadroomPeriod < 0 {
		return
	}

	for _, c := range w.customers {
		w.pg.pools[c.balance].Adjust(2 * topUp)
	}

	const need = 5
	admitted := map[*customer]int{}
	small := func(seconds time.Duration) {
		clear(admitted)
		for end := w.now + seconds; w.now < end; w.runUntil(w.now + 20*time.Millisecond) {
			for _, c := range w.customers {
				r := &request{
					id:        w.newRequestID(),
					customer:  c,
					key:       c.keys[w.r.IntN(len(c.keys))],
					amount:    need,
					cost:      1,
					duration:  5 * time.Millisecond,
					needsSlot: true,
				}
				r.admitted = func() { admitted[c]++ }
				w.proxies[w.r.IntN(len(w.proxies))].accept(r)
			}
		}
	}
	small(w.profile.HeadroomPeriod + 2*time.Second)
	small(time.Second)

	for _, c := range w.customers {
		p := w.pg.pools[c.balance]
		if admitted[c] > 10 && p.Central && p.Free > (p.Total-p.Settled)*3/4 && p.Free > 100*need*int64(len(w.proxies)) {
			w.fail("liveness: pool %d has headroom and stays in central mode: %+v", p.ID, *p)
		}
		if p := w.pg.pools[c.slots]; admitted[c] > 10 && p.Central && p.Total >= 40*int64(len(w.proxies)) && p.Free > p.Total*3/4 {
			w.fail("liveness: pool %d has headroom and stays in central mode: %+v", p.ID, *p)
		}
	}
}

// checkIdleIsShared checks that a proxy can use all units of an account that are free or idle, although the other proxies
// would keep those that are idle there for longer.
func (w *world) checkIdleIsShared() {
	w.runUntil(w.now + min(w.profile.IdleTimeout/2, 2*idleTimeout))
	for _, c := range w.customers {
		p, elsewhere, busy := w.proxies[w.r.IntN(len(w.proxies))], int64(0), false
		usable := w.pg.pools[c.balance].Free
		for _, other := range w.proxies {
			q := other.queues[c.name]
			if q == nil || !other.alive {
				continue
			}
			at := q.queue.LeaseView(c.balance)
			idle := at.Granted - at.Returned - at.Charged - at.Running
			usable += idle
			busy = busy || at.Running > 0 || len(q.waiting) > 0 // these requests come first
			if other != p {
				elsewhere += idle
			}
		}

		k := w.unlimitedKey(p, c)
		if k == nil || busy || elsewhere == 0 || !p.valid(p.clock().Add(2*time.Second)) ||
			p.usedCapacity()+2 >= w.profile.SpoolCapacity*9/10 {
			continue
		}

		w.stats.count("balances that one proxy needs of all")
		admitted := false
		p.accept(&request{
			id:       w.newRequestID(),
			customer: c,
			key:      k,
			amount:   usable,
			cost:     1,
			duration: 5 * time.Millisecond,
			admitted: func() { admitted = true },
		})

		w.runUntil(w.now + 1200*time.Millisecond)
		if !admitted {
			w.fail(
				"liveness: %s does not get the %d units of %s that are free or idle: %+v",
				p.name,
				usable,
				c.name,
				*w.pg.pools[c.balance],
			)
		}
	}
}

// lastAnswer returns the decision of a queue's outstanding lease request, if there
// is one.
func (w *world) lastAnswer(
	batch *allocator.Batch,
	q *accountQueue,
	request *wire.LeaseRequest,
	reply *wire.LeaseResponse,
) *wire.LeaseResponse {
	if q.request == nil {
		return nil
	}

	key := allocator.RequestKey{Session: q.session, Account: request.Account}
	answers := []*wire.LeaseResponse{}
	if q.session == request.Session {
		answers = append(answers, reply)
	}

	for _, results := range []map[allocator.RequestKey]*allocator.Result{batch.Results, w.pg.results} {
		if r := results[key]; r != nil {
			answers = append(answers, &r.Response)
		}
	}

	for _, a := range answers {
		if a.Number == q.request.Number {
			return a
		}
	}

	return nil
}
