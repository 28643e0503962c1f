package lease

import "time"

// TenureState is how far the life of a session has come. It only grows.
type TenureState int16

// The states of a session, as stored.
const (
	// TenureActive sessions may ask and renew.
	TenureActive TenureState = 1
	// TenureFenced ones may only give back, report usage and close.
	TenureFenced TenureState = 2
	// TenureClosed ones hold nothing: what is still charged to them is late.
	TenureClosed TenureState = 3
)

// Tenure is a session as the control plane keeps it: one row in Postgres. Left
// is by the clock of Postgres, the only one that all control planes share.
type Tenure struct {
	ID   SessionID
	Boot string
	// State of a session that does not exist is zero.
	State TenureState
	// Left is how long the session is still valid; negative once it has expired.
	Left time.Duration
	// AppliedRev is the revision that its proxy has reported as applied.
	AppliedRev int64
}

// Asks tells whether the session may ask for grants and renew.
func (t *Tenure) Asks() bool { return t.State == TenureActive && t.Left >= 0 }

// Admits tells whether the session's proxy may still admit from what it holds
// idle. One that expired on Postgres' clock may still run on its own.
func (t *Tenure) Admits() bool { return t.State == TenureActive }

// GivesBack tells whether the session has anything that a Return could return.
func (t *Tenure) GivesBack() bool { return t.State == TenureActive || t.State == TenureFenced }

// Charged tells whether costs are charged to the session's leases; costs of any
// other session come out of what is free.
func (t *Tenure) Charged() bool { return t.GivesBack() }

// Renew extends the session, and notes what its proxy has applied. It returns
// false, with nothing changed, for a session that is over.
func (t *Tenure) Renew(r *Renew, valid time.Duration) bool {
	if t.Boot != r.Boot || !t.Asks() {
		return false
	}
	t.Left, t.AppliedRev = valid, max(t.AppliedRev, r.AppliedRev)
	return true
}

// Fence ends a session that has expired by more than margin: its proxy cannot
// take itself for valid any more, however its clock drifts.
func (t *Tenure) Fence(margin time.Duration) bool {
	if t.State != TenureActive || t.Left >= -margin {
		return false
	}
	t.State = TenureFenced
	return true
}

// Outlived tells whether a fenced session has been silent for so long that no
// request of it can run any more: it is closed without its events.
func (t *Tenure) Outlived(rest time.Duration) bool {
	return t.State == TenureFenced && t.Left < -rest
}

// Close takes in that the session's proxy wants it closed, with as many of its
// events settled. It is fenced by that, and done when nothing of it is open any
// more. A session of another life of the proxy, or one that Postgres does not
// know, holds nothing.
func (t *Tenure) Close(c *CloseSession, settled int64) (done bool) {
	if !t.GivesBack() || t.Boot != c.Boot {
		return true
	}
	t.State = TenureFenced
	if settled < c.FinalCount {
		return false
	}
	t.State = TenureClosed
	return true
}

// Lacks tells whether the session's proxy may still admit without knowing a
// revision.
func (t *Tenure) Lacks(rev int64) bool { return t.Admits() && t.AppliedRev < rev }
