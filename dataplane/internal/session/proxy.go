package session

import (
	"context"
	"log/slog"
	"time"

	"modelgateway/shared/lease/checkpoint"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

// proxy implements the interfaces through which the client and the closer act on
// the rest of the proxy. Its methods are called with the lock of the Keeper held.
type proxy struct{ k *Keeper }

var (
	_ session.Proxy = proxy{}
	_ session.Usage = proxy{}
)

func (p proxy) ResetKeys(floor, epoch int64) {
	p.k.epoch = epoch
	p.k.keys.Reset(floor, epoch)
}

func (p proxy) ApplyChange(c wire.KeyChange) {
	p.k.history.Applied(c)
	p.k.keys.Apply(c)
	p.k.hooks.OnChange(c)
}

func (p proxy) StreamLost() {
	p.k.log.Warn("usage stream was created again: unsettled usage is published again")
	p.k.usage.Republish()
}

func (p proxy) HoldUsage(held bool) { p.k.usage.HoldUsage(held) }

func (p proxy) CommitsLost(epoch int64) {
	p.k.log.Warn("postgres has lost commits: reservations are reported and unsettled usage is published again", slog.Int64("epoch", epoch))
	p.k.usage.Republish()
	p.k.hooks.OnLoss()
}

func (p proxy) SessionStarted(id wire.SessionID, window time.Duration) {
	s := &Session{ID: id, Boot: p.k.boot, clock: p.k.clock}
	p.k.keys.RequireMAC(p.k.allHaveMAC)
	p.k.beginFresh(id, window)
	p.k.answered(p.k.clock(), window)
	p.k.history, p.k.alone = checkpoint.NewHistory(p.k.client.Applied()), false
	p.k.hooks.OnSession(s)
	if resumed := p.k.current.Swap(s); resumed != nil {
		resumed.end()
		p.k.closer.Close(p.k.clock())
	}
	p.k.metrics.sessions.Inc()
	p.k.log.Info("session registered", slog.Int64("session", int64(id)))
}

func (p proxy) SessionEnded(id wire.SessionID, reason session.EndReason) {
	p.k.fresh, p.k.resumable = nil, nil
	if s := p.k.current.Load(); s != nil && reason != session.EndReplaced { // SessionStarted replaces it
		s.end()
		p.k.current.Store(nil)
	}
	if reason == session.EndRecalled {
		p.k.closer.Close(p.k.clock())
	}
	level := slog.LevelWarn
	if reason == session.EndLeave || reason == session.EndReplaced {
		level = slog.LevelInfo
	}
	p.k.log.Log(context.Background(), level, "session ended", slog.Int64("session", int64(id)), slog.String("reason", string(reason)))
}

func (p proxy) FinishedSessions(open ...wire.SessionID) []wire.CloseRequest {
	return p.k.usage.FinishedSessions(open...)
}

func (p proxy) SessionClosed(r wire.CloseRequest) {
	p.k.usage.MarkClosed(r.Session)
	p.k.log.Info("session closed", slog.Int64("session", int64(r.Session)), slog.Int64("events", r.FinalCount))
}
