package session

import (
	"maps"
	"slices"
	"time"

	"modelgateway/shared/wire"
)

// PendingSession is a live session that has not reported a revision as applied.
type PendingSession struct {
	Session wire.SessionID
	// Remaining is how long the session is still valid; negative once it has expired.
	Remaining time.Duration
}

// Barrier is the acknowledgement barrier of one key change. It is done when
// every session that may admit without the change has acknowledged it, has
// reported it as applied, or has certainly expired.
//
// Times are readings of the caller's clock, which does not go back.
type Barrier struct {
	revision int64
	margin   time.Duration
	until    map[wire.SessionID]time.Duration
	// done has the sessions that the barrier no longer waits for, though they may still be listed as pending.
	done      map[wire.SessionID]bool
	confirmed int
}

// NewBarrier returns the Barrier of a revision for the pending sessions. They
// must be read after the commit of the change, and now must be read after them:
// otherwise a slow read would make a session expire too early. margin bounds the
// error of a session's clock.
func NewBarrier(revision int64, pending []PendingSession, margin, now time.Duration) *Barrier {
	b := &Barrier{revision: revision, margin: margin, until: map[wire.SessionID]time.Duration{}, done: map[wire.SessionID]bool{}}
	b.add(pending, now)
	return b
}

// Ack records an acknowledgement.
func (b *Barrier) Ack(a wire.Ack) {
	if _, ok := b.until[a.Session]; ok && a.Revision >= b.revision {
		b.drop(a.Session)
		b.confirmed++
	}
}

func (b *Barrier) add(pending []PendingSession, now time.Duration) {
	for _, p := range pending {
		if _, ok := b.until[p.Session]; !ok && !b.done[p.Session] {
			b.until[p.Session] = now + p.Remaining + b.margin
		}
	}
}

func (b *Barrier) drop(session wire.SessionID) {
	delete(b.until, session)
	b.done[session] = session != 0 // the next loss adds unknown sessions, with id 0, again
}

// Refresh applies a new list of the pending sessions. A session that is no
// longer pending has reported the change in a heartbeat; but if its time is over,
// it may have expired instead, and does not count as confirmed. Sessions are new
// in the list only if Postgres has lost commits.
func (b *Barrier) Refresh(pending []PendingSession, now time.Duration) {
	b.add(pending, now)
	still := map[wire.SessionID]bool{}
	for _, p := range pending {
		still[p.Session] = true
	}
	for session, until := range b.until {
		if still[session] {
			continue
		}
		b.drop(session)
		if now < until-b.margin {
			b.confirmed++
		}
	}
}

// Done reports whether the barrier waits for no session any more.
func (b *Barrier) Done(now time.Duration) bool {
	for session, until := range b.until {
		if now >= until {
			b.drop(session)
		}
	}
	return len(b.until) == 0
}

// Confirmed returns how many sessions are known to have applied the change.
func (b *Barrier) Confirmed() int { return b.confirmed }

// Waiting returns the sessions that the barrier waits for, sorted, or nil.
func (b *Barrier) Waiting() []wire.SessionID { return slices.Sorted(maps.Keys(b.until)) }

// MaxWait returns the longest time that the barrier can still wait.
func (b *Barrier) MaxWait(now time.Duration) (bound time.Duration) {
	for _, until := range b.until {
		bound = max(bound, until-now)
	}
	return bound
}
