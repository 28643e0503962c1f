package session

import (
	"maps"
	"modelgateway/shared/wire"
	"slices"
	"time"
)

// Pending is a live session that has not reported a revision as applied.
type PendingSession struct {
	Session wire.SessionID
	// Left is how long the session is still valid; negative once it has expired.
	Remaining time.Duration
}

// Barrier is the confirmation of one change: it is down when every session that
// may admit without knowing the change has acknowledged it, is known to have
// applied it, or cannot take itself for valid any more.
//
// Times are of the caller's clock, which does not go back.
type Barrier struct {
	rev    int64
	margin time.Duration
	until  map[wire.SessionID]time.Duration
	// over holds the sessions that need not be waited for any more: they may still be listed as pending.
	over      map[wire.SessionID]bool
	confirmed int
}

// NewBarrier returns the Barrier of a revision for the sessions that lack it.
// They are read after the commit of the change; now is after the reading, so
// that a slow one does not end a session early. Margin is what a session's
// clock may be off.
func NewBarrier(rev int64, pending []PendingSession, margin, now time.Duration) *Barrier {
	b := &Barrier{rev: rev, margin: margin, until: map[wire.SessionID]time.Duration{}, over: map[wire.SessionID]bool{}}
	b.add(pending, now)
	return b
}

// Ack takes in an acknowledgement.
func (b *Barrier) Ack(a wire.Ack) {
	if _, ok := b.until[a.Session]; ok && a.Revision >= b.rev {
		b.drop(a.Session)
		b.confirmed++
	}
}

func (b *Barrier) add(pending []PendingSession, now time.Duration) {
	for _, p := range pending {
		if _, ok := b.until[p.Session]; !ok && !b.over[p.Session] {
			b.until[p.Session] = now + p.Remaining + b.margin
		}
	}
}

func (b *Barrier) drop(session wire.SessionID) {
	delete(b.until, session)
	b.over[session] = session != 0 // those that nobody knows come again with the next loss
}

// Keep drops the sessions that are no longer pending: one that has renewed had
// applied the change by that. One whose time had run out may have ended without
// a word, and is not said to have confirmed. Those that have become pending were
// not known before: Postgres has lost commits.
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

// Down tells whether no session is waited for any more.
func (b *Barrier) Done(now time.Duration) bool {
	for session, until := range b.until {
		if now >= until {
			b.drop(session)
		}
	}
	return len(b.until) == 0
}

// Confirmed is how many sessions are known to have applied the change.
func (b *Barrier) Confirmed() int { return b.confirmed }

// Waiting are the sessions that are waited for, sorted; nil when there are
// none.
func (b *Barrier) Waiting() []wire.SessionID { return slices.Sorted(maps.Keys(b.until)) }

// Bound is how long the barrier can still stand.
func (b *Barrier) MaxWait(now time.Duration) (bound time.Duration) {
	for _, until := range b.until {
		bound = max(bound, until-now)
	}
	return bound
}
