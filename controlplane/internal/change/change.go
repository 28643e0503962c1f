// Package change owns what the control plane promises about a change of a key
// or an account: whether every proxy acts by it.
//
// A change is committed first and announced after; whoever announces it again
// waits for the same thing. How proxies are told and counted is not its
// business.
package change

import (
	"context"
	"time"

	"modelgateway/shared/wire"
)

// Confirmation says how far a change has got.
type Confirmation struct {
	// Effective is set when no proxy acts by the state before the change any more.
	Effective bool
	// ConfirmedBy counts the proxies that have acknowledged the change.
	ConfirmedBy int
	// Bound is how long it takes at most until the change is effective; zero when it is.
	Bound time.Duration
	// Waiting are the sessions of the proxies that have not confirmed it; none when it is effective.
	Waiting []wire.SessionID
}

// Announcer tells every proxy of a change and waits for them. It returns when
// the change is effective or the context ends, whichever is first: the end of
// the context is no error but a Confirmation that is not effective. An error
// means that proxies may not have been told; they learn of the change when
// they renew their sessions.
type Announcer interface {
	Announce(ctx context.Context, c wire.KeyChange) (Confirmation, error)
}
