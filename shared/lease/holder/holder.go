// Package holder is a proxy's side of the leases of one account in one
// session: it admits requests from idle units, queues the others, and composes
// lease requests and returns. It has no lock, clock or I/O of its own.
//
// A request that needs 30 of the balance and a slot, at a proxy that holds nothing of its account:
//
//	Queue.Reserve          a Waiter that waits: no idle units cover its needs
//	Queue.Next             lease request 1, with the needs of all waiters
//	Queue.HandleResponse   granted, with an allotment on top if the pools are in escrow mode: the waiter is admitted
//	Queue.Release          the call has cost 21: they are charged, and the other 9 are idle
//
// While idle units last, Reserve admits the requests that follow, without a message. A recall of the pool
// (Queue.HandleRecall) makes Next return what is idle.
//
// Granted, returned and charged are totals that only grow. So a message that is lost is sent again, one that comes twice
// changes nothing, and no order of messages makes units out of nothing. What the holder does not know it takes for
// uncertain: it admits by it no request, and refuses none. Only the control plane refuses.
//
// Holder has the numbers; Queue adds when to send, to repeat and to give up. The proxy runs a Queue for each account with a
// lock and timers (package admission), the simulation runs it with its own clock.
package holder

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"modelgateway/shared/wire"
)

// lease is the proxy's side of one lease.
type lease struct {
	pool       wire.PoolID
	generation int64
	central    bool
	// unknown means that no response has named the lease yet. Its totals may not be zero in Postgres: the Holder forgets
	// leases that hold nothing.
	unknown bool
	// until is when the window ends whose units these are; zero: never. over means that it has ended: nothing is kept.
	until time.Duration
	over  bool
	// slots means that the units are slots.
	slots bool
	// granted is the greatest granted total that was read, returned the total returned, charged the costs of finished
	// requests, running the units of unfinished ones.
	granted, returned, charged, running int64
	// allotment bounds the idle units; zero for a central pool.
	allotment int64
	// waiters is the number of waiters that need the pool.
	waiters int
	// confirmed is the returned total that the control plane is known to have. reportDue makes the holder send a Return
	// even if no units are returned, because the control plane waits for one; askSettled does so to learn whether
	// everything is settled.
	confirmed             int64
	reportDue, askSettled bool
	// requested means that the outstanding lease request reports the lease; inRequest is the returned total in it.
	requested bool
	inRequest int64
	// provisional means that a Return answered a recall while a lease request was outstanding: the answer does not count
	// if the response to that request grants units.
	provisional bool
	// used means that a request has used the lease since the last ForgetSettled.
	used bool
	// demand is how fast requests use up the units.
	demand demand
	// hasIdle means that Holder.idle counts the lease, isDue that the next Return must include it, and listed that it is in
	// Holder.due.
	hasIdle, isDue, listed bool
}

// unreported reports whether the next Return must include the lease.
func (l *lease) unreported() bool {
	return l.reportDue || l.askSettled || l.returned > max(l.confirmed, l.inRequest)
}

func (l *lease) idle() int64 { return l.granted - l.returned - l.charged - l.running }

// empty reports whether the lease holds nothing, and Postgres knows everything
// that was returned.
func (l *lease) empty() bool {
	return l.running == 0 && l.waiters == 0 && l.idle() <= 0 && l.returned <= l.confirmed && !l.reportDue && !l.requested
}

// Holder is the proxy's side of the protocol for one account in one session. It
// is not safe for concurrent use: the caller holds a lock and sends the messages.
//
// The totals of a lease never decrease within a session. A lease that holds
// nothing is forgotten when the control plane has settled its charges; if the
// pool is needed again, the response has the totals.
type Holder struct {
	session wire.SessionID
	bootID  string
	account string
	pools   map[wire.PoolID]*lease
	// idle is the number of leases with idle units. due has the leases that the next Return must include, in the order in
	// which they became due, and some that are not due any more.
	idle  int
	due   []*lease
	queue []*Waiter
	// low has the leases whose idle units are to be topped up by the next lease request.
	low []*lease
	// request is the outstanding lease request, requested has its waiters; ret is the outstanding Return.
	request    *wire.LeaseRequest
	requested  []*Waiter
	ret        *wire.Return
	lastNumber int64
	// endsAt is when the next window ends of a lease; Never if none does.
	endsAt time.Duration
	// escrowFrom is the number of the first lease request whose response may switch a pool to escrow mode.
	escrowFrom int64
	running    int
}

// NewHolder returns the Holder of an account in a session.
func NewHolder(session wire.SessionID, boot, account string) *Holder {
	return &Holder{
		session: session,
		bootID:  boot,
		account: account,
		pools:   map[wire.PoolID]*lease{},
		endsAt:  Never,
	}
}

// StartAfter makes the numbers of lease requests begin after number, if an
// earlier Holder of the same account and session has used them up to it.
func (h *Holder) StartAfter(number int64) { h.lastNumber = max(h.lastNumber, number) }

func (h *Holder) lease(id wire.PoolID) *lease {
	l := h.pools[id]
	if l == nil {
		l = &lease{
			pool:       id,
			generation: 1,
			central:    true,
			unknown:    true,
		}
		h.pools[id] = l
	}
	return l
}

// changed is called after every change of a lease. It counts the idle units
// beyond the allotment as returned: those of a central pool, and those that were
// granted to a request although other units were idle.
func (h *Holder) changed(l *lease) {
	if l.central || l.over {
		l.allotment = 0
	}
	l.returned += max(l.idle()-l.allotment, 0)
	if idle := l.idle() > 0; idle != l.hasIdle {
		if l.hasIdle = idle; idle {
			h.idle++
		} else {
			h.idle--
		}
	}
	if l.isDue = l.unreported(); l.isDue && !l.listed {
		l.listed = true
		h.due = append(h.due, l)
	}
}

// firstDue returns up to n leases that are due and not in except.
func (h *Holder) firstDue(n int, except map[*lease]bool) []*lease {
	for len(h.due) > 0 && !h.due[0].isDue {
		h.due[0].listed = false
		h.due = h.due[1:]
	}
	var first []*lease
	for _, l := range h.due {
		if len(first) >= n {
			break
		}
		if l.isDue && !except[l] {
			first = append(first, l)
		}
	}
	return first
}

// leases returns all leases in the order of their pools.
func (h *Holder) leases() []*lease {
	return slices.SortedFunc(maps.Values(h.pools), func(a, b *lease) int { return cmp.Compare(a.pool, b.pool) })
}

// Running returns the number of granted requests that have not finished.
func (h *Holder) Running() int { return h.running }

// Reserve reserves the needs of one request. The waiter is granted at once if
// every pool has enough idle units. Otherwise it queues; requests that are
// covered pass it, because the control plane decides about it, and not the idle
// units of this session.
func (h *Holder) Reserve(needs []wire.Need) *Waiter {
	w := &Waiter{needs: needs}
	if h.covered(needs) {
		h.grant(w)
		return w
	}
	for _, n := range needs {
		h.lease(n.Pool).waiters++
	}
	h.queue = append(h.queue, w)
	return w
}

// covered reports whether every pool is in escrow mode and has enough idle
// units.
func (h *Holder) covered(needs []wire.Need) bool {
	for _, n := range needs {
		if l := h.pools[n.Pool]; l == nil || l.central || l.idle() < n.Amount {
			return false
		}
	}
	return true
}

// use adds the units of a need to those of unfinished requests.
func (l *lease) use(n wire.Need) {
	l.running += n.Amount
	l.slots = n.Kind == wire.Slots
	l.used, l.askSettled = true, false
}

// grant grants a waiter from idle units.
func (h *Holder) grant(w *Waiter) {
	for _, n := range w.needs {
		l := h.pools[n.Pool]
		l.use(n)
		h.changed(l)
	}
	w.state = granted
	h.running++
}

// stopWaiting removes a waiter from the leases that it needs.
func (h *Holder) stopWaiting(w *Waiter) {
	for _, n := range w.needs {
		h.pools[n.Pool].waiters--
	}
}

// AbortWaiters aborts all waiters because the session has ended, and returns
// them. Granted requests continue and are released as usual. The outstanding lease
// request is kept: units that were granted to it are returned when its response
// comes.
func (h *Holder) AbortWaiters() []*Waiter {
	waiters := slices.DeleteFunc(slices.Concat(h.requested, h.queue), func(w *Waiter) bool { return !w.isWaiting() })
	h.queue = nil
	for _, w := range waiters {
		h.stopWaiting(w)
		w.state = aborted
	}
	return waiters
}

// Cancel cancels a waiter. It returns false if the waiter was granted already
// and must be released.
func (h *Holder) Cancel(w *Waiter) (gone bool) {
	if w.state != waiting {
		return w.state != granted
	}
	h.stopWaiting(w)
	w.state = cancelled
	h.queue = slices.DeleteFunc(h.queue, func(q *Waiter) bool { return q == w })
	return true
}

// Release ends a granted request with its cost, in nano-units, and returns the
// waiters that its units admit. A second Release has no effect.
func (h *Holder) Release(w *Waiter, cost int64) []*Waiter {
	if w.state != granted {
		return nil
	}

	w.state = finished
	h.running--
	awaited := false
	for _, n := range w.needs {
		if w.slotless && n.Kind == wire.Slots {
			continue
		}
		l := h.pools[n.Pool]
		l.running -= n.Amount
		if n.Kind != wire.Slots {
			l.charged += cost
		}
		h.changed(l)
		awaited = awaited || (l.waiters > 0 && !l.central)
	}

	if !awaited {
		return nil
	}

	return h.admitCovered()
}

// ReleaseSlot gives the slots of a granted request back before its end, and returns the waiters that they admit.
func (h *Holder) ReleaseSlot(w *Waiter) []*Waiter {
	if w.state != granted || w.slotless {
		return nil
	}
	w.slotless = true
	awaited := false
	for _, n := range w.needs {
		if n.Kind == wire.Slots {
			l := h.pools[n.Pool]
			l.running -= n.Amount
			h.changed(l)
			awaited = awaited || (l.waiters > 0 && !l.central)
		}
	}

	if !awaited {
		return nil
	}

	return h.admitCovered()
}

// HandleRecall switches a pool to central mode. Its idle units are returned; if
// there are none, a Return is due all the same, as the answer to the recall.
func (h *Holder) HandleRecall(pool wire.PoolID, gen int64) {
	l := h.pools[pool]
	if l == nil || gen < l.generation {
		return
	}
	l.generation, l.central, l.reportDue = gen, true, true
	h.changed(l)
}

// hasIdle reports whether units of any pool are idle.
func (h *Holder) hasIdle() bool { return h.idle > 0 }

// ReportIdle makes the leases with idle units due for the next Return, which gives
// nothing back: its response shows that the control plane responds.
func (h *Holder) ReportIdle() {
	for _, l := range h.leases() {
		if l.idle() > 0 {
			l.askSettled = true
			h.changed(l)
		}
	}
}

// ReturnIdle returns all idle units.
func (h *Holder) ReturnIdle() {
	for _, l := range h.leases() {
		if idle := l.idle(); idle > 0 {
			l.returned += idle
			h.changed(l)
		}
	}
}

// DisableEscrow returns all idle units, and holds none until the response to a
// later lease request allows it, because a correction may have reduced the pool.
// The generation does not change: an earlier report must not answer a later
// recall.
func (h *Holder) DisableEscrow() {
	h.escrowFrom = h.lastNumber + 1
	for _, l := range h.leases() {
		l.central = true
		h.changed(l)
	}
}

// Resync reports all leases again, because Postgres may have lost earlier
// reports.
func (h *Holder) Resync() {
	for _, l := range h.leases() {
		l.confirmed, l.reportDue = 0, l.reportDue || l.granted > 0
		h.changed(l)
	}
}

// ForgetSettled forgets the leases that no request has used since the last call
// and that never held units. Those that hold none any more are reported once
// more: they are forgotten when the control plane answers that it has settled
// their charges. ForgetSettled is called from time to time; otherwise a Holder
// would keep the spend limit of every key that was ever used.
func (h *Holder) ForgetSettled() {
	for _, l := range h.leases() {
		if used := l.used; used || !l.empty() {
			l.used = false
			continue
		}
		if l.granted == 0 {
			delete(h.pools, l.pool)
			continue
		}
		l.askSettled = true
		h.changed(l)
	}
}

// Unused reports whether the Holder knows nothing that a new one would not know,
// except for the number of the last lease request.
func (h *Holder) Unused() bool {
	return len(h.pools) == 0 && h.request == nil && h.ret == nil && len(h.queue) == 0 && h.running == 0
}
