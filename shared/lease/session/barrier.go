package session

import (
	"maps"
	"modelgateway/shared/wire"
	"slices"
	"time"
)

// PendingSession is a live session that has not reported a revision as applied.
type PendingSession struct {
	Session wire.SessionID
	// Remaining is how long the session is still valid; negative once it has expired.
	Remaining time.Duration
}

// Barrier is the acknowledgement barrier of one key change. It is done when
// every session that may admit without the change has acknowledged it, is known
// to have applied it, or has certainly expired.
//
// Times are of the caller's clock, which does not go back.
type Barrier struct {
	revision int64
	margin   time.Duration
	until    map[wire.SessionID]time.Duration
	// done has the sessions that need no waiting any more, though they may still be listed as pending.
	done      map[wire.SessionID]bool
	confirmed int
}

// NewBarrier returns the Barrier of a revision for the sessions that have not
// applied it. They are read after the commit of the change, and now is taken
// after that, so that a slow read does not end a session early. margin bounds
// the error of a session's clock.
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
	b.done[session] = session != 0 // unknown sessions come again with the next loss
}

// Refresh takes the list of pending sessions read again. A session that is no
// longer pending has reported the change in a heartbeat; if its time had run
// out, it may have just ended, and does not count as confirmed. Sessions that
// have become pending were not known before: Postgres has lost commits.
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

// Waiting returns the sessions that the barrier waits for, sorted; nil if there
// are none.
func (b *Barrier) Waiting() []wire.SessionID { return slices.Sorted(maps.Keys(b.until)) }

// MaxWait returns the longest time that the barrier can still wait.
func (b *Barrier) MaxWait(now time.Duration) (bound time.Duration) {
	for _, until := range b.until {
		bound = max(bound, until-now)
	}
	return bound
}
