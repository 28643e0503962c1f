// Package session has the state machines of proxy sessions: the proxy's client
// that registers and sends heartbeats, the control plane's record of a session,
// the order of key changes at a proxy, the invalidation of cached key records,
// and the barrier that confirms a change.
//
// A session on its way:
//
//	Client.Next               a registration; HandleRegistered starts the session, with its window and floor
//	Freshness.Beat, ReadBack  every quarter of the window: the proxy has missed no change, and may admit
//	Client.Next               every sixth of the window: a heartbeat with the applied revision
//	Closer                    asks to close earlier sessions until all their usage is settled
//
// A revocation on its way, with revision 42. The control plane pushes it and appends it to the stream of changes:
//
//	Client.HandlePushed   a proxy that has applied 41 applies 42 and acknowledges it: Barrier.Ack
//	                      one that lacks 41 applies 42 at once, too, but acknowledges nothing: it sends a heartbeat, whose
//	                      response has both, and which reports 42 then
//	Confirmation          the stream has had the change for the window and a margin: Barrier.Confirm, for the proxies
//	                      that have said nothing
//
// Either way Barrier.Done holds only when no valid session can admit the key. Invalidations keeps the key from coming back
// with a record that was read before the change.
package session

import (
	"time"

	"modelgateway/shared/wire"
)

// State is the state of a session. It never decreases.
type State int16

// The states of a session, as stored.
const (
	// Active sessions may send lease requests and heartbeats.
	Active State = 1
	// Fenced sessions may only return units, report usage and close.
	Fenced State = 2
	// Closed sessions hold nothing: charges that still come are late.
	Closed State = 3
)

// Record is the control plane's record of a session: one row in Postgres.
type Record struct {
	ID     wire.SessionID
	BootID string
	// State is zero for a session that does not exist.
	State State
	// Ending means that an active session is to be fenced when the stream of changes has confirmed that: until then, its proxy
	// may admit. It is not extended any more.
	Ending bool
	// Remaining is how long the proxy may still be silent; negative once the session has expired. It is measured by the clock
	// of Postgres, the only one that all control planes share, and matters only to Expired and Over; see Remaining.
	Remaining time.Duration
	// AppliedRevision is the revision up to which its proxy has reported all changes as applied.
	AppliedRevision int64
}

// Remaining returns how long a proxy may still be silent. left is that time by
// the clock of Postgres, servingFor is how long the replica that asks has served
// in this server incarnation without an absence (see Presence), by its own
// monotonic clock, and window is that of sessions. The clock of another server may be
// ahead, so that left is too short; but each session was extended in this
// incarnation, by the clock of this server, or before the replica entered it. After an
// absence, left says only that nobody could extend the session.
func Remaining(left, servingFor, window time.Duration) time.Duration {
	return max(left, window-servingFor)
}

// MayAdmit reports whether the session's proxy may admit, and may send lease
// requests and heartbeats. A session that has expired is active until it is
// fenced: what depends on its end waits for that.
func (r *Record) MayAdmit() bool { return r.State == Active }

// CanReturn reports whether the session can return units.
func (r *Record) CanReturn() bool { return r.State == Active || r.State == Fenced }

// HoldsLeases reports whether costs are charged to the session's leases. The
// costs of a closed session are taken from the free units instead.
func (r *Record) HoldsLeases() bool { return r.CanReturn() }

// Heartbeat records that the proxy is heard, and the revision that it has applied. It
// returns false, and changes nothing, if the session has ended or is to end, or belongs
// to another process.
func (r *Record) Heartbeat(h *wire.HeartbeatRequest, window time.Duration) bool {
	if r.BootID != h.BootID || !r.MayAdmit() || r.Ending {
		return false
	}
	r.AppliedRevision, r.Remaining = max(r.AppliedRevision, h.AppliedRevision), window
	return true
}

// Expired reports whether an active session is to end, because its proxy is silent.
// The proxy may still admit: the session is fenced when the stream of changes has
// confirmed its end.
func (r *Record) Expired() bool { return r.State == Active && r.Remaining < 0 }

// CloseAfter is how long the leases of an expired session are kept for usage that may still be reported, not counting the
// time in which no control plane could have taken it. If a proxy and its spool are lost, its units stay reserved for as
// long.
const CloseAfter = 15 * time.Minute

// Over reports whether a fenced session has been silent for so long that its process
// counts as lost, and that its usage has had the time to come. It is then closed, although
// usage events may be unsettled. A process that lives says so while requests of the session
// run (see Close), so that a call may last for any time.
//
// heardFor is how long the replica that asks could have heard the proxy and
// settled its usage. Silence does not count before: after an absence of the
// control planes, of Postgres or of the bus, the usage of the session still waits
// in the stream or at its proxy, and units that were freed now would be spent
// twice, as grants and as late charges.
func (r *Record) Over(heardFor, closeAfter time.Duration) bool {
	return r.State == Fenced && min(-r.Remaining, heardFor) > closeAfter
}

// Close handles a request to close the session; settled is the number of its
// settled usage events. The session is fenced, and closed once all of its events
// are settled. Close reports whether it is closed. A session of another process,
// or one that Postgres does not know, holds nothing and counts as closed. While
// requests run in it, each repetition shows that the process lives: its silence
// begins again, and the session keeps its leases.
func (r *Record) Close(c *wire.CloseRequest, settled int64) (done bool) {
	if !r.CanReturn() || r.BootID != c.BootID {
		return true
	}
	r.State = Fenced
	if c.FinalCount == wire.NotFinal {
		r.Remaining = max(r.Remaining, 0)
		return false
	}
	if settled < c.FinalCount {
		return false
	}
	r.State = Closed
	return true
}
