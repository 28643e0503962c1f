package holder

import (
	"slices"
	"time"

	"modelgateway/shared/lease/checkpoint"
	"modelgateway/shared/wire"
)

// IdleUnits returns the idle units of the pools in escrow mode, in the order of the
// pools. A process that continues the session may use them less what was charged
// since (see checkpoint.Consumption): units that came back since are more than those that were
// returned to the control plane, as long as it has not answered. zeroMS is the zero of the queue's clock, in milliseconds since 1970.
func (q *Queue) IdleUnits(zeroMS int64) (list []checkpoint.IdleUnits) {
	if q.ended || (q.closed && !q.resumed) {
		return nil
	}
	for _, l := range q.holder.leases() {
		if idle := l.idle(); idle > 0 && !l.central && !l.over {
			u := checkpoint.IdleUnits{
				Pool:  l.pool,
				Units: idle,
				Slots: l.slots,
			}
			if l.until != 0 {
				u.UntilMS = zeroMS + l.until.Milliseconds()
			}
			list = append(list, u)
		}
	}
	return list
}

// ResumeQueue returns the Queue of an account in a session that an earlier process
// of the proxy registered, with idle units. It admits the requests that they cover
// and aborts all others at once. It never has a message to send: the totals of the
// leases are those of the earlier process. zeroMS is the zero of its clock, as in IdleUnits.
func ResumeQueue(
	session wire.SessionID,
	boot, account string,
	idle []checkpoint.IdleUnits,
	zeroMS int64,
	timing *Timing,
	response *ResponseTime,
) *Queue {
	h := NewHolder(session, boot, account)
	for _, u := range idle {
		if u.Units > 0 {
			l := h.lease(u.Pool)
			l.unknown, l.central, l.granted, l.allotment, l.slots = false, false, u.Units, u.Units, u.Slots
			h.changed(l)
			if u.UntilMS != 0 {
				h.useUntil(u.Pool, max(time.Duration(u.UntilMS-zeroMS)*time.Millisecond, 1))
			}
		}
	}
	q := NewQueue(h, timing, response)
	q.closed, q.resumed = true, true
	return q
}

// reserveResumed reserves the needs of a request in a resumed session.
func (q *Queue) reserveResumed(now time.Duration, needs []wire.Need) *Waiter {
	q.usedAt = now
	q.holder.endWindows(now)
	ended := func(n wire.Need) bool { l := q.holder.pools[n.Pool]; return l != nil && l.over }
	if !q.holder.covered(needs) || slices.ContainsFunc(needs, ended) {
		return &Waiter{needs: needs, state: aborted}
	}
	return q.holder.Reserve(needs)
}
