// Package propagation defines how a committed change reaches the proxies and
// when it counts as effective: when no proxy can act on the state before the
// change any more.
//
// A change is committed first and announced afterwards. Announcing it again
// waits for the same result.
package propagation

import (
	"context"
	"slices"
	"time"

	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

// Confirmation is the state of a change's propagation.
type Confirmation struct {
	// Effective reports that no proxy acts on the state before the change any more.
	Effective bool
	// Confirmed are the sessions of the live proxies that have applied the change.
	Confirmed []session.ActiveSession
	// Bound is the time after which the change is effective at the latest; zero if it is, or if nobody knows: see
	// session.Reach.
	Bound time.Duration
	// Waiting are the sessions of the proxies that have not confirmed it; none if it is effective, or if they could not be
	// read.
	Waiting []session.ActiveSession
}

// ConfirmedBy returns the names of the proxies that have applied the change,
// sorted and each once. A proxy with another session that has not confirmed it is
// not among them.
func (c *Confirmation) ConfirmedBy() []string {
	waiting := c.WaitingFor()
	return slices.DeleteFunc(names(c.Confirmed), func(name string) bool { return slices.Contains(waiting, name) })
}

// WaitingFor returns the names of the proxies that have not confirmed the
// change, sorted and each once.
func (c *Confirmation) WaitingFor() []string { return names(c.Waiting) }

func names(sessions []session.ActiveSession) []string {
	names := make([]string, 0, len(sessions))
	for _, s := range sessions {
		name := s.Proxy
		if s.Session == 0 {
			name = "(unknown proxies of an earlier cluster epoch)"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Announcer pushes a change to every proxy and waits for the acknowledgements.
// It returns when the change is effective or the context ends; in the latter
// case, the Confirmation is not effective and the error is nil. With an error it is
// not effective either: the change may not have been pushed, and proxies receive it
// with their next heartbeat, or the sessions could not be read.
type Announcer interface {
	Announce(ctx context.Context, c wire.KeyChange) (Confirmation, error)
}
