package leasing

import (
	"context"
	"fmt"
	"time"

	"modelgateway/controlplane/internal/change"
	"modelgateway/shared/lease"
)

// Pusher sends a change to every proxy. Acks receives each acknowledgement
// until stop is called.
type Pusher interface {
	Push(ctx context.Context, c lease.Change, acks func(lease.Ack)) (stop func(), err error)
}

var _ change.Announcer = (*Service)(nil)

// pushPause is the time between two pushes of an unconfirmed change.
const pushPause = 250 * time.Millisecond

// Announce pushes a committed change to every proxy and waits until each live
// session has acknowledged it or has expired, or until the service's own
// time-out. It may be called again for the same change.
//
// The sessions are read after the change's commit: registration and renewal
// are serialised with changes, so a session that is not among them already
// knows the revision.
func (s *Service) Announce(ctx context.Context, c lease.Change) (change.Confirmation, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ConfirmTimeout)
	defer cancel()
	start := time.Now()
	pending, err := s.store.Pending(ctx, c.Rev)
	read := time.Now() // after the reading: a slow one must not make a session end early
	switch {
	case err != nil && ctx.Err() != nil: // nothing is known but that no session outlives its length
		return change.Confirmation{Bound: s.cfg.Valid + s.cfg.margin()}, nil
	case err != nil:
		return change.Confirmation{}, fmt.Errorf("announce revision %d: %w", c.Rev, err)
	}
	w := wait{lease.NewBarrier(c.Rev, pending, s.cfg.margin(), read.Sub(start)), start}
	acks := make(chan lease.Ack, 64)
	defer s.metrics.announced(start)
	for {
		stop, err := s.pusher.Push(ctx, c, func(a lease.Ack) {
			select {
			case acks <- a:
			case <-ctx.Done():
			}
		})
		if err != nil {
			return change.Confirmation{}, fmt.Errorf("announce revision %d: %w", c.Rev, err)
		}
		done := w.gather(ctx, acks)
		stop()
		if done || ctx.Err() != nil {
			return w.confirmation(time.Now()), nil
		}
		// A session that renews has applied the change by that: it need not be waited for.
		if pending, err = s.store.Pending(ctx, c.Rev); err == nil {
			w.Keep(pending, time.Since(w.start))
		}
	}
}

// wait is the state of one announcement. Its barrier counts from start.
type wait struct {
	*lease.Barrier
	start time.Time
}

// gather takes acknowledgements for a while. It returns true when no session
// is waited for any more.
func (w wait) gather(ctx context.Context, acks <-chan lease.Ack) bool {
	again := time.NewTimer(pushPause)
	defer again.Stop()
	for {
		if w.Down(time.Since(w.start)) {
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

func (w wait) confirmation(now time.Time) change.Confirmation {
	at := now.Sub(w.start)
	return change.Confirmation{Effective: w.Down(at), ConfirmedBy: w.Confirmed(), Bound: w.Bound(at), Waiting: w.Waiting()}
}
