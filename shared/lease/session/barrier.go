package session

import (
	"maps"
	"slices"
	"time"

	"modelgateway/shared/wire"
)

// ActiveSession is an active session as the acknowledgement barrier sees it.
type ActiveSession struct {
	Session wire.SessionID
	// Proxy is the name of the session's proxy; empty for the entry that stands for unknown sessions.
	Proxy string
	// AppliedRevision is the revision up to which its proxy has reported all changes as applied.
	AppliedRevision int64
	// Remaining is how long the session may still be valid; negative once it has expired.
	Remaining time.Duration
}

// Barrier is the acknowledgement barrier of one key change. It is done when
// every session that may admit without the change has acknowledged it, has
// reported it as applied, or is no longer active. No session leaves the barrier
// because of the time: a proxy's heartbeat and the fencing of its session exclude
// each other in Postgres, and a clock does not.
type Barrier struct {
	revision int64
	active   map[wire.SessionID]ActiveSession
	acked    map[wire.SessionID]bool
}

// NewBarrier returns the Barrier of a revision for the active sessions, which
// must be read after the commit of the change. A session that registers later
// needs no acknowledgement: its proxy has no key records from before.
func NewBarrier(revision int64, active []ActiveSession) *Barrier {
	b := &Barrier{revision: revision, acked: map[wire.SessionID]bool{}}
	b.Refresh(active)
	return b
}

// Refresh replaces the active sessions by a newer list.
func (b *Barrier) Refresh(active []ActiveSession) {
	b.active = make(map[wire.SessionID]ActiveSession, len(active))
	for _, s := range active {
		b.active[s.Session] = s
	}
}

// Ack records an acknowledgement.
func (b *Barrier) Ack(a wire.Ack) {
	if a.Revision >= b.revision {
		b.acked[a.Session] = true
	}
}

func (b *Barrier) pending(s ActiveSession) bool {
	return s.AppliedRevision < b.revision && !b.acked[s.Session]
}

// Done reports whether the barrier waits for no session any more.
func (b *Barrier) Done() bool { return len(b.Waiting()) == 0 }

// Confirmed returns the active sessions that are known to have applied the
// change, sorted by id, or nil.
func (b *Barrier) Confirmed() []ActiveSession { return b.sessions(false) }

// Waiting returns the sessions that the barrier waits for, sorted by id, or nil.
func (b *Barrier) Waiting() []ActiveSession { return b.sessions(true) }

func (b *Barrier) sessions(pending bool) (found []ActiveSession) {
	for _, id := range slices.Sorted(maps.Keys(b.active)) {
		if s := b.active[id]; b.pending(s) == pending {
			found = append(found, s)
		}
	}
	return found
}

// MaxWait returns the longest time that the barrier can still wait, counted from
// when the sessions were read.
func (b *Barrier) MaxWait(margin time.Duration) (bound time.Duration) {
	for _, s := range b.Waiting() {
		bound = max(bound, s.Remaining+margin)
	}
	return bound
}
