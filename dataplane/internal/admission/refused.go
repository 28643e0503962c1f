package admission

import (
	"errors"
	"fmt"
	"time"

	"modelgateway/shared/limit"
	"modelgateway/shared/wire"
)

var (
	// ErrUnavailable says that it cannot be decided now whether the request may run.
	ErrUnavailable = errors.New("admission: no decision is possible now")
	// ErrNoSession is the ErrUnavailable of a proxy whose session has ended, or that has none yet.
	ErrNoSession = fmt.Errorf("%w: no session", ErrUnavailable)
	// ErrNoSpool is the ErrUnavailable of a proxy that cannot store the usage of the request.
	ErrNoSpool = fmt.Errorf("%w: its usage cannot be stored", ErrUnavailable)
	// ErrNoControlPlane is returned by Bus if no replica of the control plane takes messages.
	ErrNoControlPlane = errors.New("admission: no control plane takes messages")
	// ErrKey says that the key stopped working while the request waited: it was revoked, paused or has expired, or its account was
	// suspended. The error has the auth.InactiveError, too.
	ErrKey = errors.New("admission: the key is no longer valid")
)

// RefusedError is a refusal of the control plane.
type RefusedError struct {
	wire.Decision
	// Wanted is how much the request needed of the pool of the reason.
	Wanted int64
	// Limit is the limit that is short; nil if it is the spend limit of the key, or another pool. ResetsAt is when its window ends, the
	// zero time if that is never or not known.
	Limit    *limit.Limit
	ResetsAt time.Time
	// KeyID is the id of the key.
	KeyID string
	// OfKey reports that the pool of the reason has the key's own slots, not those of the account.
	OfKey bool
}

// Scope returns whose limit, slots or balance was short.
func (e *RefusedError) Scope() limit.Scope {
	switch {
	case e.Limit != nil:
		return e.Limit.Scope
	case e.OfKey, e.Reason == wire.LimitInsufficient, e.Reason == wire.LimitReserved: // without a Limit, it is the spend limit of the key
		return limit.Key
	default:
		return limit.Account
	}
}

// Error returns the reason of the refusal.
func (e *RefusedError) Error() string { return "admission: refused: " + string(e.Reason) }
