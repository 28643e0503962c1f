package changestream

import (
	"context"
	"errors"
	"log/slog"

	"modelgateway/shared/wire"
)

// ConfirmedEpoch reports whether no proxy admits any more in a session from before
// a cluster epoch: then the recovery wait is over.
func (a *Appender) ConfirmedEpoch(epoch int64) bool { return a.epoch.Load() >= epoch }

// endSessions takes the next step with each session that is to be fenced, and with
// a new cluster epoch.
func (a *Appender) endSessions(ctx context.Context) error {
	sessions, epoch, err := a.store.EndingSessions(ctx)
	if err != nil {
		return err
	}

	kept := make(map[string]*pending, len(sessions)+1)
	for _, s := range sessions {
		m := wire.StreamChange{Ended: s.ID}
		if kept[m.Subject()] = a.ends[m.Subject()]; kept[m.Subject()] == nil {
			kept[m.Subject()] = a.newPending(m, s.Window)
			a.log.WarnContext(
				ctx,
				"session has expired: it is fenced when its proxy has read so in the stream of changes, or is not fresh any more",
				slog.Int64("session", int64(s.ID)),
			)
		}
	}

	if epoch > a.epoch.Load() {
		if err := a.keepEpoch(ctx, kept, epoch); err != nil {
			return err
		}
	}

	a.ends = kept
	var errs []error
	for _, p := range a.ends {
		if err := a.step(ctx, p); err != nil {
			errs = append(errs, err)
		}
	}

	return errors.Join(append(errs, a.endConfirmed(ctx))...)
}

// keepEpoch keeps the confirmation of a cluster epoch. Postgres may have lost
// sessions, so the stream says for how long. Beats do not: a stolen
// proxy could hold up every grant by one of them.
func (a *Appender) keepEpoch(ctx context.Context, kept map[string]*pending, epoch int64) error {
	m := wire.StreamChange{Epoch: epoch}
	of := m.Subject()
	if p := a.ends[of]; p != nil && p.message.Epoch == epoch {
		kept[of] = p
		return nil
	}
	window, err := a.stream.Window(ctx)
	if err != nil {
		return err
	}
	kept[of] = a.newPending(m, max(window, a.window))
	return nil
}

// endConfirmed fences the sessions whose ends are confirmed.
func (a *Appender) endConfirmed(ctx context.Context) error {
	var over []wire.SessionID
	for _, p := range a.ends {
		switch {
		case !p.confirmation.Done():
		case p.message.Epoch != 0:
			a.epoch.Store(p.message.Epoch)
		default:
			over = append(over, p.message.Ended)
		}
	}

	if len(over) == 0 {
		return nil
	}

	fenced, err := a.store.FenceEnding(ctx, over)
	if fenced > 0 {
		a.log.WarnContext(ctx, "sessions expired without being closed by their proxies", slog.Int("fenced", fenced))
	}

	return err
}
