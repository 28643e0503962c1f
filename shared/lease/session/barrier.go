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
	// Window is for how long its proxy admits after a beat in the stream of changes; zero for the entry that stands for
	// unknown sessions.
	Window time.Duration
}

// Barrier is the acknowledgement barrier of one key change. It is done when
// every session that may admit without the change has acknowledged it, has
// reported it as applied, or is no longer active, or when the stream of changes has
// confirmed the change: then its proxy is not fresh, or has read the change. Unknown
// sessions leave it only when the recovery wait is over.
type Barrier struct {
	revision int64
	active   map[wire.SessionID]ActiveSession
	acked    map[wire.SessionID]bool
	// window is the longest one for which the stream of changes has confirmed the change; zero if it has not.
	window time.Duration
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

// Confirm records that the stream of changes has confirmed the change for
// windows up to this one (see Confirmation): sessions with such a window admit
// nothing without it.
func (b *Barrier) Confirm(window time.Duration) { b.window = max(window, b.window) }

// MaxWindow returns the longest window of the sessions that the barrier waits for;
// zero if it waits for none that is known.
func (b *Barrier) MaxWindow() (window time.Duration) {
	for _, s := range b.Waiting() {
		window = max(window, s.Window)
	}
	return window
}

func (b *Barrier) applied(s ActiveSession) bool {
	return s.AppliedRevision >= b.revision || b.acked[s.Session]
}

func (b *Barrier) pending(s ActiveSession) bool {
	return !b.applied(s) && (s.Session == 0 || s.Window > b.window)
}

// Done reports whether the barrier waits for no session any more.
func (b *Barrier) Done() bool { return len(b.Waiting()) == 0 }

// Confirmed returns the active sessions that are known to have applied the
// change, sorted by id, or nil.
func (b *Barrier) Confirmed() []ActiveSession { return b.sessions(b.applied) }

// Waiting returns the sessions that the barrier waits for, sorted by id, or nil.
func (b *Barrier) Waiting() []ActiveSession { return b.sessions(b.pending) }

func (b *Barrier) sessions(of func(ActiveSession) bool) (found []ActiveSession) {
	for _, id := range slices.Sorted(maps.Keys(b.active)) {
		if s := b.active[id]; of(s) {
			found = append(found, s)
		}
	}
	return found
}
