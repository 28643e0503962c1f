package leasing

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

// ChangeStream is the stream of changes, to which package changestream appends
// them.
type ChangeStream interface {
	// LastChange returns the last change in the stream that has a subject, and where it is.
	LastChange(ctx context.Context, subject string) (last wire.StreamChange, at session.Place, sequence uint64, err error)
	// ChangeAt returns the place of the change that the stream has at a place: it is another one if the stream has lost the
	// change.
	ChangeAt(ctx context.Context, at session.Place) (session.Place, error)
}

const (
	// askInterval is the time between two questions to the stream of changes, askTimeout bounds one.
	askInterval, askTimeout = 500 * time.Millisecond, time.Second
	// maxStreamed bounds the remembered confirmations.
	maxStreamed = 1000
)

// streamed has the confirmations of changes by the stream of changes, by revision.
// A change that is announced again continues waiting where it was.
type streamed struct {
	mu         sync.Mutex
	byRevision map[int64]*streamedChange
}

// streamedChange is the confirmation of one change for windows up to window.
type streamedChange struct {
	mu sync.Mutex
	*session.Confirmation
	window time.Duration
}

// of returns the confirmation of a change; the first call, and one with a longer
// window, begins it.
func (s *streamed) of(revision int64, window time.Duration) *streamedChange {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.byRevision[revision]; c != nil && c.window >= window {
		return c
	}
	if s.byRevision == nil {
		s.byRevision = map[int64]*streamedChange{}
	}
	if len(s.byRevision) >= maxStreamed {
		delete(s.byRevision, slices.Min(slices.Collect(maps.Keys(s.byRevision))))
	}
	c := &streamedChange{Confirmation: session.NewConfirmation(session.Lasts(window)), window: window}
	s.byRevision[revision] = c
	return c
}

// step takes the next step of a confirmation, and reports whether it is done. A
// later change of the same key or account includes the effect of this one.
func (c *streamedChange) step(
	ctx context.Context,
	stream ChangeStream,
	change *wire.KeyChange,
	clock func() session.Instant,
) (done bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	switch {
	case c.Append():
		last, at, _, err := stream.LastChange(ctx, change.Subject())
		if err != nil {
			return false, err
		}
		if last.Valid() && last.Change.Revision >= change.Revision {
			c.Appended(clock(), at)
		}
	case c.Due(clock()):
		found, err := stream.ChangeAt(ctx, c.Place())
		if err != nil {
			return false, err
		}
		c.Verified(found)
	}

	return c.Done(), nil
}

// askStream asks the stream of changes whether it has confirmed the change, if the
// barrier waits for a session.
func (a *announcement) askStream(ctx context.Context) {
	s := a.service
	window := a.barrier.MaxWindow()
	if window == 0 || time.Since(a.asked) < askInterval {
		return
	}

	a.asked = time.Now()
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	c := s.streamed.of(a.change.Revision, window)
	done, err := c.step(ctx, s.cfg.Changes, &a.change, func() session.Instant { return session.Instant{Mono: time.Since(s.started)} })
	if err != nil {
		s.log.DebugContext(ctx, "the stream of changes does not say whether it has a change", slog.Any("error", err))
	}
	if done {
		a.barrier.Confirm(c.window)
	}
}
