package session

import (
	"modelgateway/shared/wire"
	"slices"
)

// Changes is the order in which a proxy applies the changes of keys and
// accounts. Each is applied as soon as it is known; it is acknowledged, and
// reported as applied, only when every one before it is applied too. The zero
// value is of no session, and applies nothing.
type ChangeLog struct {
	session wire.SessionID
	applied int64
	// gaps holds the revisions that are applied before an earlier one.
	gaps map[int64]bool
}

// Begin begins a session, which knows everything up to rev.
func (c *ChangeLog) Begin(session wire.SessionID, rev int64) {
	*c = ChangeLog{session: session, applied: rev, gaps: map[int64]bool{}}
}

// End ends the session: what is pushed from now on is known to the next
// registration.
func (c *ChangeLog) End() { *c = ChangeLog{} }

// Session is the one that changes are applied in; zero for none.
func (c *ChangeLog) Session() wire.SessionID { return c.session }

// Applied is the revision up to which everything is applied.
func (c *ChangeLog) Applied() int64 { return c.applied }

// Pushed applies a change that was pushed. It returns false when it cannot be
// acknowledged: there is no session, or a change before it is missing, which a
// renewal brings.
func (c *ChangeLog) ApplyPushed(change wire.KeyChange, apply func(wire.KeyChange)) (ack wire.Ack, ok bool) {
	if c.session == 0 {
		return wire.Ack{}, false
	}
	apply(change)
	if change.PreviousRevision > c.applied {
		c.gaps[change.Revision] = true
		return wire.Ack{}, false
	}
	c.applied = max(c.applied, change.Revision)
	return c.ack(), true
}

func (c *ChangeLog) ack() wire.Ack {
	return wire.Ack{V: wire.Version, Session: c.session, Revision: c.applied}
}

// Fetched applies the changes of a renewal, which follow one another without a
// gap. It returns the acknowledgement that is now due for the revisions that
// had been pushed before an earlier one.
func (c *ChangeLog) ApplyFetched(session wire.SessionID, changes []wire.KeyChange, apply func(wire.KeyChange)) (ack wire.Ack, due []int64) {
	if c.session != session {
		return wire.Ack{}, nil
	}
	for _, change := range changes {
		apply(change)
		c.applied = max(c.applied, change.Revision)
	}
	for rev := range c.gaps {
		if rev <= c.applied {
			due = append(due, rev)
			delete(c.gaps, rev)
		}
	}
	slices.Sort(due)
	return c.ack(), due
}
