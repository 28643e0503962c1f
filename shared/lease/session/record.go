package session

import (
	"modelgateway/shared/wire"
	"time"
)

// TenureState is how far the life of a session has come. It only grows.
type State int16

// The states of a session, as stored.
const (
	// TenureActive sessions may ask and renew.
	Active State = 1
	// TenureFenced ones may only give back, report usage and close.
	Fenced State = 2
	// TenureClosed ones hold nothing: what is still charged to them is late.
	Closed State = 3
)

// Tenure is a session as the control plane keeps it: one row in Postgres. Left
// is by the clock of Postgres, the only one that all control planes share.
type Record struct {
	ID     wire.SessionID
	BootID string
	// State of a session that does not exist is zero.
	State State
	// Left is how long the session is still valid; negative once it has expired.
	Remaining time.Duration
	// AppliedRev is the revision that its proxy has reported as applied.
	AppliedRevision int64
}

// Asks tells whether the session may ask for grants and renew.
func (t *Record) CanRequest() bool { return t.State == Active && t.Remaining >= 0 }

// Admits tells whether the session's proxy may still admit from what it holds
// idle. One that expired on Postgres' clock may still run on its own.
func (t *Record) MayAdmit() bool { return t.State == Active }

// GivesBack tells whether the session has anything that a Return could return.
func (t *Record) CanReturn() bool { return t.State == Active || t.State == Fenced }

// Charged tells whether costs are charged to the session's leases; costs of any
// other session come out of what is free.
func (t *Record) HoldsLeases() bool { return t.CanReturn() }

// Renew extends the session, and notes what its proxy has applied. It returns
// false, with nothing changed, for a session that is over.
func (t *Record) Heartbeat(r *wire.HeartbeatRequest, valid time.Duration) bool {
	if t.BootID != r.BootID || !t.CanRequest() {
		return false
	}
	t.Remaining, t.AppliedRevision = valid, max(t.AppliedRevision, r.AppliedRevision)
	return true
}

// Fence ends a session that has expired by more than margin: its proxy cannot
// take itself for valid any more, however its clock drifts.
func (t *Record) Fence(margin time.Duration) bool {
	if t.State != Active || t.Remaining >= -margin {
		return false
	}
	t.State = Fenced
	return true
}

// Outlived tells whether a fenced session has been silent for so long that no
// request of it can run any more: it is closed without its events.
func (t *Record) Expired(rest time.Duration) bool {
	return t.State == Fenced && t.Remaining < -rest
}

// Close takes in that the session's proxy wants it closed, with as many of its
// events settled. It is fenced by that, and done when nothing of it is open any
// more. A session of another life of the proxy, or one that Postgres does not
// know, holds nothing.
func (t *Record) Close(c *wire.CloseRequest, settled int64) (done bool) {
	if !t.CanReturn() || t.BootID != c.BootID {
		return true
	}
	t.State = Fenced
	if settled < c.FinalCount {
		return false
	}
	t.State = Closed
	return true
}

// Lacks tells whether the session's proxy may still admit without knowing a
// revision.
func (t *Record) Behind(rev int64) bool { return t.MayAdmit() && t.AppliedRevision < rev }
