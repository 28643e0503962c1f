package sim

import (
	"time"

	"modelgateway/shared/lease/checkpoint"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

// proxyHost implements the interfaces through which the client and the closer act
// on the rest of the proxy.
type proxyHost struct{ p *proxy }

func (h proxyHost) ResetKeys(floor, _ int64) { h.p.invalidations.BeginSession(floor) }

func (h proxyHost) ApplyChange(c wire.KeyChange) { h.p.applyChange(c) }

func (h proxyHost) HoldUsage(held bool) { h.p.w.rules.HoldUsage(h.p.usage, held) }

func (h proxyHost) StreamLost() { h.p.w.rules.Republish(h.p.usage) }

func (h proxyHost) CommitsLost(int64) {
	p := h.p
	p.usage.Republish()
	seen := map[*accountQueue]bool{}
	for _, r := range p.running {
		if q := r.queue; q != nil && !seen[q] {
			seen[q] = true
			p.w.rules.Resync(q.queue)
			q.pump()
		}
	}
}

func (h proxyHost) SessionStarted(id wire.SessionID, _ time.Duration) {
	h.p.w.rules.Resume.Void(h.p)
	h.p.endQueues()
	h.p.session, h.p.isResumed = id, false
	h.p.history, h.p.alone = checkpoint.NewHistory(h.p.client.Applied()), false
	h.p.beginFresh(id)
}

func (h proxyHost) SessionEnded(id wire.SessionID, reason session.EndReason) {
	h.p.w.log("%s: session %d has ended: %s", h.p.name, id, reason)
	h.p.w.rules.Resume.Void(h.p)
	h.p.session, h.p.fresh, h.p.resumable = 0, nil, nil
	if h.p.isResumed {
		h.p.isResumed = false
		h.p.closer.Close(h.p.clock())
	}
}

func (h proxyHost) FinishedSessions(open ...wire.SessionID) []wire.CloseRequest {
	return h.p.usage.FinishedSessions(open...)
}

func (h proxyHost) SessionClosed(r wire.CloseRequest) {
	l := h.p.usage.Session(r.Session)
	if forgotten := h.p.usage.MarkClosed(r.Session); l != nil && forgotten {
		h.p.trim(r.Session, l.Last, true)
	}
}
