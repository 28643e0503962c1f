package holder

import (
	"slices"
	"time"

	"modelgateway/shared/lease/outage"
	"modelgateway/shared/wire"
)

// overdraw grants a waiter that idle units do not cover, if the outage allowances of
// the pools that are short have room for its needs. Its leases hold less than is
// used of them then, until the control plane has granted the charges as overrun.
func (h *Holder) overdraw(w *Waiter, use *outage.AllowanceUse) bool {
	var beyond []wire.Need
	for _, n := range w.needs {
		if !h.coversNeed(n) {
			beyond = append(beyond, n)
		}
	}
	if !use.Take(beyond, func(pool wire.PoolID) int64 { return h.pools[pool].allowance }) {
		return false
	}
	w.beyond = beyond
	h.stopWaiting(w)
	h.grant(w)
	return true
}

// overdrawAll grants, in their order, the waiters that the outage allowances have
// room for, and returns them.
func (h *Holder) overdrawAll(use *outage.AllowanceUse) (admitted []*Waiter) {
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
	return q.response.UndecidedFor(now) >= q.timing.AllowanceAfter
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
