package holder

import (
	"time"

	"modelgateway/shared/wire"
)

// UseUntil says that the units of a pool are those of a window that ends or is lowered at a time; zero: never. It is called with every
// response to a lease request, because the clock of the proxy may be set: the last word counts. At the time, the idle units are
// returned, and those of its running requests as they end, since no later request may use them without being asked for.
func (q *Queue) UseUntil(pool wire.PoolID, at time.Duration) { q.holder.useUntil(pool, at) }

func (h *Holder) useUntil(pool wire.PoolID, at time.Duration) {
	if l := h.pools[pool]; l != nil {
		l.until, l.over = at, false
		if at != 0 {
			h.endsAt = min(h.endsAt, at)
		}
	}
}

// endWindows ends the leases whose windows have ended. It returns when the next one ends.
func (h *Holder) endWindows(now time.Duration) time.Duration {
	if now < h.endsAt {
		return h.endsAt
	}
	h.endsAt = Never
	for _, l := range h.leases() {
		switch {
		case l.until == 0 || l.over:
		case now < l.until:
			h.endsAt = min(h.endsAt, l.until)
		default:
			l.over = true
			h.changed(l)
		}
	}
	return h.endsAt
}
