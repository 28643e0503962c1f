package leasing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"modelgateway/controlplane/internal/propagation"
	"modelgateway/shared/lease/rollback"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/platform/sleep"
	"modelgateway/shared/wire"
)

// Pusher sends messages to the proxies that they have not asked for, and records
// revocations outside of Postgres.
type Pusher interface {
	// Recall asks a session for its idle units. The message may be lost: it is repeated while a lease request waits for it.
	Recall(session wire.SessionID, r wire.Recall) error
	// Push sends a change to every proxy. acks receives each acknowledgement until stop is called.
	Push(ctx context.Context, c wire.KeyChange, acks func(wire.Ack)) (stop func(), err error)
	// AskReserved asks every proxy what the running requests of an account reserve. answers receives each answer until
	// stop is called.
	AskReserved(ctx context.Context, q wire.ReservedRequest, answers func(wire.ReservedResponse)) (stop func(), err error)
	// RecordRevocation records a revocation outside of Postgres, so that it survives a loss of commits. A revocation
	// counts as confirmed only when it is recorded.
	RecordRevocation(ctx context.Context, c wire.KeyChange) error
}

var _ propagation.Announcer = (*Service)(nil)

// pushPause is the time between two pushes of an unconfirmed change.
const pushPause = 250 * time.Millisecond

// Announce pushes a committed change to every proxy and waits until each live
// session has acknowledged it or has expired, or until the service's own
// time-out. It may be called again for the same change.
//
// The sessions are read after the change's commit: registration and renewal
// are serialised with changes, so a session that is not among them already
// knows the revision.
func (s *Service) Announce(ctx context.Context, c wire.KeyChange) (propagation.Confirmation, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ConfirmTimeout)
	defer cancel()
	start := time.Now()
	recorded := s.recordRevocation(ctx, c)
	pending, err := s.pending(ctx, c)
	read := time.Now() // after the reading: a slow one must not make a session end early
	switch {
	case err != nil && ctx.Err() != nil: // nothing is known but that no session outlives its length
		return propagation.Confirmation{Bound: s.cfg.Valid + s.cfg.margin()}, nil
	case err != nil:
		return propagation.Confirmation{}, fmt.Errorf("announce revision %d: %w", c.Revision, err)
	}
	w := wait{session.NewBarrier(c.Revision, pending, s.cfg.margin(), read.Sub(start)), start}
	sound := recorded // what was read of Postgres was read after the change was recorded
	acks := make(chan wire.Ack, 64)
	defer s.metrics.announced(start)
	for {
		stop, err := s.pusher.Push(ctx, c, func(a wire.Ack) {
			select {
			case acks <- a:
			case <-ctx.Done():
			}
		})
		if err != nil {
			return propagation.Confirmation{}, fmt.Errorf("announce revision %d: %w", c.Revision, err)
		}
		done := w.gather(ctx, acks)
		stop()
		if ctx.Err() != nil || (done && sound) {
			confirmation := w.confirmation(time.Now())
			confirmation.Effective = confirmation.Effective && sound
			return confirmation, nil
		}
		if recorded = recorded || s.recordRevocation(ctx, c); done && !recorded {
			sleep.For(ctx, pushPause) // before it is tried again
		}
		// A session that renews has applied the change by that: it need not be waited for.
		switch pending, err = s.pending(ctx, c); {
		case err == nil:
			sound = recorded
			w.Refresh(pending, time.Since(w.start))
		case errors.Is(err, errGone):
			return propagation.Confirmation{}, err
		case done:
			sleep.For(ctx, pushPause)
		}
	}
}

// recordRevocation records a change outside of Postgres if it is a revocation.
// It returns false if it has to be tried again.
func (s *Service) recordRevocation(ctx context.Context, c wire.KeyChange) bool {
	if c.Kind != wire.KeyRevoked {
		return true
	}
	if err := s.pusher.RecordRevocation(ctx, c); err != nil {
		s.log.WarnContext(ctx, "recording a revocation outside of Postgres failed", slog.Any("error", err))
		return false
	}
	return true
}

// errGone says that Postgres has lost a change before it was confirmed.
var errGone = errors.New("leasing: the change was lost with other commits of postgres")

// pending returns the sessions that a change waits for. It is read after the
// change is recorded: a loss of commits later than that makes it again.
func (s *Service) pending(ctx context.Context, c wire.KeyChange) ([]session.PendingSession, error) {
	pending, err := s.store.Pending(ctx, c.Revision)
	if err != nil {
		return nil, err
	}
	stands, since, err := s.store.Standing(ctx, c)
	switch {
	case err != nil:
		return nil, err
	case !stands:
		return nil, errGone
	}
	return append(pending, rollback.UnknownSessions(since, s.cfg.Valid, s.cfg.margin())...), nil
}

// wait is the state of one announcement. Its barrier counts from start.
type wait struct {
	*session.Barrier
	start time.Time
}

// gather takes acknowledgements for a while. It returns true when no session
// is waited for any more.
func (w wait) gather(ctx context.Context, acks <-chan wire.Ack) bool {
	again := time.NewTimer(pushPause)
	defer again.Stop()
	for {
		if w.Done(time.Since(w.start)) {
			return true
		}
		select {
		case a := <-acks:
			w.Ack(a)
		case <-again.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

func (w wait) confirmation(now time.Time) propagation.Confirmation {
	at := now.Sub(w.start)
	return propagation.Confirmation{Effective: w.Done(at), ConfirmedBy: w.Confirmed(), Bound: w.MaxWait(at), Waiting: w.Waiting()}
}
