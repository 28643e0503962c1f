package sim

import (
	"time"

	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

// checkDecisions checks I5 when a lease request is decided.
func (w *world) checkDecisions(batch *allocator.Batch, request *wire.LeaseRequest, reply *wire.LeaseResponse) {
	if batch.Recovering {
		w.fail("units are granted during the recovery wait")
	}
	for i, d := range reply.Decisions {
		if !d.Granted {
			w.checkRefusal(batch, request, reply, i)
		}
	}
}

// checkRefusal checks that some pool had less than the need, and that no session
// held idle units of it.
func (w *world) checkRefusal(batch *allocator.Batch, request *wire.LeaseRequest, reply *wire.LeaseResponse, i int) {
	d, short := reply.Decisions[i], false
	if d.Reason == wire.WrongWindow {
		return
	}
	for _, n := range request.Needs[i] {
		p := batch.Allocator.Pools[n.Pool]
		if p == nil || p.Unlimited {
			continue
		}
		if kind, ok := heldKind[d.Reason]; ok && kind == n.Kind && n.Pool == d.Pool {
			w.checkIdle(batch, n.Pool, request, reply)
		}
		short = short || p.Free+grantedFrom(request, reply, n.Pool, i+1) < n.Amount
	}
	if !short {
		w.fail(
			"I5: request %d of lease request %d of session %d was refused (%s) although every pool had enough",
			i,
			request.Number,
			request.Session,
			d.Reason,
		)
	}
}

// grantedFrom returns the units of a pool that a lease request was granted for its
// requests from one on.
func grantedFrom(request *wire.LeaseRequest, reply *wire.LeaseResponse, pool wire.PoolID, from int) (sum int64) {
	for i := from; i < len(reply.Decisions); i++ {
		for _, n := range request.Needs[i] {
			if reply.Decisions[i].Granted && n.Pool == pool {
				sum += n.Amount
			}
		}
	}
	return sum
}

// checkReported checks that the lease has at least the totals that the session
// reports.
func (w *world) checkReported(batch *allocator.Batch, r *wire.Return, status wire.Status) {
	if status != wire.Done || r.Reports[0].Generation == madeUp {
		return
	}
	for _, v := range r.Reports {
		l := batch.Allocator.Leases[allocator.LeaseKey{Pool: v.Pool, Session: r.Session}]
		if batch.Allocator.Pools[v.Pool] != nil && (v.GrantedSeen > 0 || v.Returned > 0) &&
			(l == nil || l.Granted < v.GrantedSeen || l.Returned < v.Returned) {
			w.fail("I2: session %d reports %+v of pool %d, its lease is %+v", r.Session, v, v.Pool, l)
		}
	}
}

// freeUnits returns the free units of the limited pools of a batch, and those that
// overruns have taken.
func freeUnits(batch *allocator.Batch) map[wire.PoolID]int64 {
	free := map[wire.PoolID]int64{}
	for id, p := range batch.Allocator.Pools {
		if !p.Unlimited {
			free[id] = p.Free + p.Overrun
		}
	}
	return free
}

// checkNothingTaken checks that a report takes no units from a pool, unless
// commits were lost or a loss was declared: sessions may then report lost grants.
func (w *world) checkNothingTaken(batch *allocator.Batch, ret *wire.Return, before map[wire.PoolID]int64) {
	if w.oracle.lost || w.oracle.lossDeclared {
		return
	}
	for id, free := range freeUnits(batch) {
		if free < before[id] {
			w.fail(
				"I10: a return of session %d takes %d units of pool %d, which it was never granted: %+v",
				ret.Session,
				before[id]-free,
				id,
				ret.Reports,
			)
		}
	}
}

// checkBounds checks that no transaction decides a message with more reports than
// a session sends.
func (w *world) checkBounds(s wire.SessionID, reports int) {
	if reports > wire.MaxReports {
		w.fail("a transaction decides a message of session %d with %d reports", s, reports)
	}
}

// checkFenced checks the response to a lease request that its session has ended: an
// active session must not end because of what another process has sent.
func (w *world) checkFenced(request *wire.LeaseRequest, response *wire.LeaseResponse) {
	stored := w.pg.sessions[request.Session]
	if response.Status != wire.Fenced || w.oracle.lost || w.oracle.lossDeclared || stored == nil {
		return
	}
	if stored.state == session.Active && stored.boot == request.BootID {
		w.fail("I10: lease request %d of session %d is told that its session has ended, and it has not", request.Number, request.Session)
	}
}

// checkAborted checks the waiters of a queue after an attempt to get a decision has
// failed: they have stopped waiting if all attempts of the proxy have failed for a
// decision timeout, and wait otherwise.
func (w *world) checkAborted(q *accountQueue, since time.Duration) {
	pointless := q.p.clock().Mono-since >= q.p.timing.DecisionTimeout
	for waiter := range q.waiting {
		switch {
		case pointless && !waiter.Aborted() && !waiter.Granted() && !waiter.Refused():
			w.fail("%s: a request waits although no control plane has decided anything since %s", q.p.name, since)
		case !pointless && waiter.Aborted():
			w.fail("%s: a request is aborted although attempts have failed only since %s", q.p.name, since)
		}
	}
}

// checkFencedGrants checks that a session that still holds leases learns of every
// grant. It would not return units of which it knows nothing.
func (w *world) checkFencedGrants(batch *allocator.Batch, request *wire.LeaseRequest, response *wire.LeaseResponse) {
	last := batch.Results[allocator.RequestKey{Session: request.Session, Account: request.Account}]
	r := batch.Sessions[request.Session]
	if response.Status != wire.Fenced || r == nil || r.BootID != request.BootID || !r.HoldsLeases() || last == nil ||
		last.Number != request.Number {
		return
	}
	for _, d := range last.Response.Decisions {
		if d.Granted {
			w.fail(
				"I8: session %d is not told of the units that lease request %d was granted before the session was fenced",
				request.Session,
				request.Number,
			)
		}
	}
}
