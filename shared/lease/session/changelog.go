package session

import (
	"slices"

	"modelgateway/shared/wire"
)

// ChangeLog tracks the key changes that a proxy has applied. Each change is
// applied as soon as it arrives; it is acknowledged, and reported as applied,
// only when every earlier one is applied too. The zero value has no session, and
// applies nothing.
type ChangeLog struct {
	session wire.SessionID
	applied int64
	// gaps has the revisions that were applied before an earlier one.
	gaps map[int64]bool
}

// Begin starts a session in which every change up to rev is applied.
func (c *ChangeLog) Begin(session wire.SessionID, rev int64) {
	*c = ChangeLog{session: session, applied: rev, gaps: map[int64]bool{}}
}

// End ends the session: the next registration covers the changes that are pushed
// from now on.
func (c *ChangeLog) End() { *c = ChangeLog{} }

// Session returns the session in which changes are applied; zero if there is none.
func (c *ChangeLog) Session() wire.SessionID { return c.session }

// Applied returns the revision up to which every change is applied.
func (c *ChangeLog) Applied() int64 { return c.applied }

// ApplyPushed applies a change that was pushed. It returns false if the change
// cannot be acknowledged: there is no session, or an earlier change is missing,
// which the response to the next heartbeat will contain.
func (c *ChangeLog) ApplyPushed(change wire.KeyChange, apply func(wire.KeyChange)) (ack wire.Ack, ok bool) {
	if c.session == 0 {
		return wire.Ack{}, false
	}
	all := change.All()
	for _, one := range all {
		apply(one)
	}
	if all[0].PreviousRevision > c.applied {
		c.gaps[change.Revision] = true
		return wire.Ack{}, false
	}
	c.applied = max(c.applied, change.Revision)
	return c.ack(), true
}

func (c *ChangeLog) ack() wire.Ack {
	return wire.Ack{V: wire.Version, Session: c.session, Revision: c.applied}
}

// ApplyFetched applies the changes of a heartbeat response, which have no gap.
// due lists the revisions that ApplyPushed could not acknowledge and that can be
// acknowledged now, by ack.
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
