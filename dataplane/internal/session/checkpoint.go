package session

import (
	"context"
	"log/slog"

	"modelgateway/shared/lease/checkpoint"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

// noCheckpoints is a Usage that keeps no checkpoint.
type noCheckpoints struct{ Usage }

func (noCheckpoints) Checkpoint() *checkpoint.Checkpoint { return nil }

func (noCheckpoints) SaveCheckpoint(*checkpoint.Checkpoint) error { return nil }

// Act calls do, which acts on a message of a control plane: the checkpoint of the
// session is removed before.
func (k *Keeper) Act(do func()) { k.guard.Act(do) }

// actOn handles an event that a checkpoint does not say.
func (k *Keeper) actOn(do func(now session.Instant)) {
	k.guard.Act(func() { k.event(do) })
}

// handlerOf returns what handles a response with a status: one without a decision
// changes nothing that a checkpoint says.
func (k *Keeper) handlerOf(status wire.Status) func(do func(now session.Instant)) {
	if status == wire.Unavailable {
		return k.event
	}
	return k.actOn
}

// resumable is a session of the earlier process in which this one can continue.
type resumable struct {
	*checkpoint.Checkpoint
	fresh *session.Freshness
}

// loadCheckpoint finds out whether the proxy can continue in the session of its earlier
// process, should no control plane respond.
func (k *Keeper) loadCheckpoint() {
	c := k.usage.Checkpoint()
	if c != nil && c.Window > 0 && c.Session > 0 {
		if fresh, ok := session.ResumeFreshness(c.Window, c.Freshness, k.clock()); ok {
			k.resumable = &resumable{c, fresh}
			k.client.MayResume(c.Session)
			return
		}
	}
	k.guard.Act(func() {}) // this process closes the session
}

// resume continues in the session of the earlier process, because a registration has
// failed. Requests are admitted when the proxy has read the stream of changes. The
// lock is held.
func (k *Keeper) resume(now session.Instant) {
	r := k.resumable
	if r == nil {
		return
	}

	k.resumable = nil
	if !r.fresh.Reads(now) { // the checkpoint is useless by then, too
		k.client.MayResume(0)
		return
	}

	k.fresh = &fresh{
		Freshness: r.fresh,
		source:    r.Source,
		session:   r.Session,
		window:    r.Window,
		number:    r.Freshness.Number,
		sequence:  r.Freshness.Last,
		seen:      map[string]bool{},
		older:     map[string]bool{},
		resumed:   r.Checkpoint,
	}
	k.client.Resume(r.Epoch, r.Known)
	k.alone, k.history = true, checkpoint.ResumeHistory(r.Known)
	k.wakeFresh()
}

func (p proxy) SessionResumed(id wire.SessionID) {
	p.k.log.Warn(
		"no control plane responds: the session of the earlier process is continued when the stream of changes has been read",
		slog.Int64("session", int64(id)),
	)
}

// beginResumed makes a resumed session current: the proxy has read what the stream of
// changes has since the earlier process ended. The lock is held.
func (k *Keeper) beginResumed(f *fresh) {
	c := f.resumed
	f.resumed = nil
	s := &Session{ID: c.Session, Boot: c.BootID, clock: k.clock}
	s.refresh(f.Until())
	k.hooks.OnResume(s, c.Idle)
	k.current.Store(s)
	f.was = true
	k.metrics.resumed.Inc()
	k.log.Info("session of the earlier process is continued", slog.Int64("session", int64(s.ID)), slog.Int("accounts", len(c.Idle)))
}

// EndResumed ends a resumed session, because a control plane has sent a message to
// it. It returns false if the session is not a resumed one.
func (k *Keeper) EndResumed() (ended bool) {
	k.mu.Lock()
	s := k.client.Session()
	_, resumed := k.client.Opened()
	ended = resumed != 0 && s == resumed
	k.mu.Unlock()
	if ended {
		k.actOn(func(now session.Instant) { k.client.EndResumed(now) })
	}
	return ended
}

// saveCheckpoint keeps what the next process needs to continue in the session, if no
// control plane responds. It reports whether there is a checkpoint now.
func (k *Keeper) saveCheckpoint() bool {
	k.mu.Lock()
	alone := k.alone && k.fresh != nil && k.hooks.Idle != nil
	k.mu.Unlock()
	if !alone {
		return false
	}
	saved, err := k.guard.Save(k.collect)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.checkpointTrouble.IsNew(err) {
		k.log.Warn("checkpoint of the session cannot be written: it ends with this process", slog.Any("error", err))
	}
	return saved && err == nil
}

// collect returns the checkpoint of the session; nil if the proxy is not fresh. The
// end of the usage log is read first: what is recorded behind it may be counted twice,
// and is never left out.
func (k *Keeper) collect() *checkpoint.Checkpoint {
	c := &checkpoint.Checkpoint{Mark: k.usage.Mark(), Idle: map[string][]checkpoint.IdleUnits{}}
	c.Idle = k.hooks.Idle()
	k.mu.Lock()
	defer k.mu.Unlock()
	s, f := k.Current(), k.fresh
	if s == nil || f == nil || f.session != s.ID || f.resumed != nil {
		return nil
	}

	var known, fresh bool
	c.Session, c.BootID, c.Epoch, c.Window, c.Source = s.ID, s.Boot, k.epoch, f.window, f.source
	c.Known, known = k.history.Known(k.client.Applied())
	c.Freshness, fresh = f.State(k.clock())
	c.Freshness.Number = max(c.Freshness.Number, f.number)
	if !known || !fresh {
		return nil
	}

	return c
}

// KeepSession keeps the session for the next process of the proxy, which stops, and
// ends the heartbeats. It returns false if a control plane responds, so that the
// session can be closed.
func (k *Keeper) KeepSession() bool {
	if !k.saveCheckpoint() {
		return false
	}
	k.Stop()
	k.log.Info("session is kept for the next process: no control plane responds")
	return true
}

// subscribeResumable subscribes to the messages of the session that may be resumed.
// Without them it lasts until the next registration all the same.
func (k *Keeper) subscribeResumable(ctx context.Context) {
	k.mu.Lock()
	r := k.resumable
	k.mu.Unlock()
	if r == nil || ctx.Err() != nil {
		return
	}
	if err := k.bus.SubscribeSession(r.Session); err != nil {
		k.log.Warn("no recalls of the earlier session are received", slog.Int64("session", int64(r.Session)), slog.Any("error", err))
	}
}
