package holder

import (
	"slices"
	"sync"
	"time"

	"modelgateway/shared/wire"
)

// AllowanceUse counts what the requests of a proxy use of the outage allowances, by
// pool: what running requests need, and the costs of ended ones until they are
// settled. All queues of a proxy share one, so that neither a new session nor a
// response gives an allowance back that is not settled. It is safe for concurrent
// use; the zero value counts nothing yet.
type AllowanceUse struct {
	mu   sync.Mutex
	used map[wire.PoolID]int64
	// balance is the sum over the pools that are balances.
	balance int64
}

// take counts the needs if each fits into what is left of its pool's allowance.
func (u *AllowanceUse) take(needs []wire.Need, allowance func(wire.PoolID) int64) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, n := range needs {
		if n.Amount > allowance(n.Pool)-u.used[n.Pool] {
			return false
		}
	}
	for _, n := range needs {
		u.add(n, n.Amount)
	}
	return true
}

// end replaces the needs of a request that has ended by its cost. A slot is free
// again.
func (u *AllowanceUse) end(needs []wire.Need, cost int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, n := range needs {
		u.add(n, -n.Amount)
		if n.Kind != wire.Slots {
			u.add(n, cost)
		}
	}
}

// Settled records that the cost with which a request was released is settled. It
// has no effect for a request that was not admitted under the allowance.
func (u *AllowanceUse) Settled(w *Waiter, cost int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, n := range w.beyond {
		if n.Kind != wire.Slots {
			u.add(n, -cost)
		}
	}
}

// add is called with the lock held.
func (u *AllowanceUse) add(n wire.Need, amount int64) {
	if u.used == nil {
		u.used = map[wire.PoolID]int64{}
	}
	if u.used[n.Pool] += amount; u.used[n.Pool] == 0 {
		delete(u.used, n.Pool)
	}
	if n.Kind == wire.Balance {
		u.balance += amount
	}
}

// Balance returns what is used of the allowances of balances, in nano-units.
func (u *AllowanceUse) Balance() int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.balance
}

// overdraw grants a waiter that idle units do not cover, if the outage allowances of
// the pools that are short have room for its needs. Its leases hold less than is
// used of them then, until the control plane has granted the charges as overrun.
func (h *Holder) overdraw(w *Waiter, use *AllowanceUse) bool {
	var beyond []wire.Need
	for _, n := range w.needs {
		if !h.coversNeed(n) {
			beyond = append(beyond, n)
		}
	}
	if !use.take(beyond, func(pool wire.PoolID) int64 { return h.pools[pool].allowance }) {
		return false
	}
	w.beyond = beyond
	h.stopWaiting(w)
	h.grant(w)
	return true
}

// overdrawAll grants, in their order, the waiters that the outage allowances have
// room for, and returns them.
func (h *Holder) overdrawAll(use *AllowanceUse) (admitted []*Waiter) {
	admit := func(w *Waiter) bool {
		if !w.isWaiting() || !h.overdraw(w, use) {
			return false
		}
		admitted = append(admitted, w)
		return true
	}
	for _, w := range h.requested {
		admit(w)
	}
	h.queue = slices.DeleteFunc(h.queue, admit)
	return admitted
}

// lateExpiry is how late the expiry of a waiter may be handled. After a longer pause
// of the process, a response may have come that was not read yet.
const lateExpiry = 250 * time.Millisecond

// undecided reports whether no control plane has decided anything for the proxy for
// so long that the outage allowance may be used.
func (q *Queue) undecided(now time.Duration) bool {
	return now-time.Duration(q.response.decidedAt.Load()) >= q.timing.AllowanceAfter
}

// overdraw grants a waiter under the outage allowance instead of letting it end
// without a decision, if no control plane decides.
func (q *Queue) overdraw(now time.Duration, w *Waiter) bool {
	if !q.undecided(now) || !q.holder.overdraw(w, q.allowance) {
		return false
	}
	q.holder.queue = slices.DeleteFunc(q.holder.queue, func(other *Waiter) bool { return other == w })
	return true
}
