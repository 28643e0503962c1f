package holder

import (
	"time"

	"modelgateway/shared/lease/checkpoint"
	"modelgateway/shared/wire"
)

// IdleUnits returns the idle units of the pools in escrow mode, in the order of the
// pools. A process that continues the session may use them less what was charged
// since (see checkpoint.Consumption): units that came back since are more than those that were
// returned to the control plane, as long as it has not answered.
func (q *Queue) IdleUnits() (list []checkpoint.IdleUnits) {
	if q.ended || (q.closed && !q.resumed) {
		return nil
	}
	for _, l := range q.holder.leases() {
		if idle := l.idle(); idle > 0 && !l.central {
			list = append(list, checkpoint.IdleUnits{Pool: l.pool, Units: idle, Slots: l.slots})
		}
	}
	return list
}

// ResumeQueue returns the Queue of an account in a session that an earlier process
// of the proxy registered, with idle units. It admits the requests that they cover
// and aborts all others at once. It never has a message to send: the totals of the
// leases are those of the earlier process.
func ResumeQueue(session wire.SessionID, boot, account string, idle []checkpoint.IdleUnits, timing *Timing, response *ResponseTime) *Queue {
	h := NewHolder(session, boot, account)
	for _, u := range idle {
		if u.Units > 0 {
			l := h.lease(u.Pool)
			l.unknown, l.central, l.granted, l.allotment, l.slots = false, false, u.Units, u.Units, u.Slots
			h.changed(l)
		}
	}
	q := NewQueue(h, timing, response)
	q.closed, q.resumed = true, true
	return q
}

// reserveResumed reserves the needs of a request in a resumed session.
func (q *Queue) reserveResumed(now time.Duration, needs []wire.Need) *Waiter {
	q.usedAt = now
	if !q.holder.covered(needs) {
		return &Waiter{needs: needs, state: aborted}
	}
	return q.holder.Reserve(needs)
}
