// Package refused says why requests are refused before a provider is called: several reasons have one code, which is all that the
// client gets.
package refused

import (
	"errors"
	"net/http"
	"time"

	"modelgateway/dataplane/internal/admission"
	"modelgateway/dataplane/internal/auth"
	"modelgateway/dataplane/internal/bytebudget"
	"modelgateway/dataplane/internal/videojob"
	"modelgateway/shared/apierr"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/event"
	"modelgateway/shared/pulse"
	"modelgateway/shared/wire"
)

// maxRetryAfter bounds the Retry-After during maintenance, which may end early.
const maxRetryAfter = time.Hour

// ErrMaintenance is the cause of a refusal because an operator has closed something. It is told apart from others with the same
// code, so that an alert on these is not silent because of it.
var ErrMaintenance = errors.New("maintenance")

// Maintenance returns the error for a request during maintenance, nil if there is none.
func Maintenance(m *catalogkv.Maintenance, now time.Time) error {
	if !m.Active(now) {
		return nil
	}
	e := apierr.New(http.StatusServiceUnavailable, apierr.ServiceUnavailable, m.Message)
	if e.Message == "" {
		e.Message = "The service is under maintenance."
	}
	e.Cause = ErrMaintenance
	if m.UntilUnix > 0 {
		e.RetryAfter = min(time.Unix(m.UntilUnix, 0).Sub(now), maxRetryAfter)
	}
	return e
}

// errNoRoute is the cause of NoRoute.
var errNoRoute = errors.New("no route can be called")

// NoRoute returns the error for a model that the account may use but that has no route that can be called now. retryAfter is when
// one may be; zero if that is not known.
func NoRoute(retryAfter time.Duration) *apierr.Error {
	e := apierr.New(http.StatusServiceUnavailable, apierr.None, "The model is temporarily unavailable. Please try again later.")
	e.RetryAfter, e.Cause = retryAfter, errNoRoute
	return e
}

// IsBusy reports whether a body had no room in the budget.
func IsBusy(err error) bool {
	return errors.Is(err, bytebudget.ErrFull) || errors.Is(err, bytebudget.ErrShare) || errors.Is(err, bytebudget.ErrTooLarge)
}

// Reason returns why a request was refused, if its code does not say that: one of the reasons of package pulse, or empty.
func Reason(err error) string {
	inactive, known := errors.AsType[*auth.InactiveError](err)
	switch {
	case known:
		return inactive.Reason
	case errors.Is(err, admission.ErrKey):
		return pulse.ReasonKeyInactive
	case errors.Is(err, ErrMaintenance):
		return pulse.ReasonMaintenance
	case errors.Is(err, admission.ErrNoSession):
		return pulse.ReasonNoSession
	case errors.Is(err, admission.ErrNoSpool):
		return pulse.ReasonNoSpool
	case IsBusy(err):
		return pulse.ReasonNoRoom
	case errors.Is(err, errNoRoute):
		return pulse.ReasonNoRoute
	case errors.Is(err, auth.ErrUnavailable), errors.Is(err, admission.ErrUnavailable):
		return pulse.ReasonUndecided
	default:
		return ""
	}
}

// Why returns why a request was refused: what was short, or the reason that Reason returns.
func Why(err error) string {
	if short := Short(err); short != nil {
		return short.Reason
	}
	return Reason(err)
}

// Short returns what a request lacked, nil if it was not refused because a pool was short.
func Short(err error) *pulse.Short {
	short := shortPool(err)
	if l := shortLimit(err); l != nil && short != nil {
		short.Scope, short.LimitID = l.scope, l.id
		if !l.resetsAt.IsZero() {
			short.ResetsMS = l.resetsAt.UnixMilli()
		}
	}
	return short
}

// shortPool returns how much a request lacked of which kind of pool.
func shortPool(err error) *pulse.Short {
	var noUnits *admission.RefusedError
	var noFurther *videojob.RefusedError
	switch {
	case errors.As(err, &noUnits):
		pool := map[wire.PoolKind]pulse.ShortPool{
			wire.Balance: pulse.Balance,
			wire.Limit:   pulse.Limit,
			wire.Slots:   pulse.Slots,
		}[noUnits.Reason.Pool()]
		short := &pulse.Short{
			Pool:     pool,
			Reason:   string(noUnits.Reason),
			Wanted:   noUnits.Wanted,
			Free:     noUnits.Free,
			Reserved: noUnits.Reserved,
		}
		if pool == pulse.Slots {
			short.Scope = noUnits.Scope()
		}
		return short
	case !errors.As(err, &noFurther):
		return nil
	case noFurther.Reason == event.VideoTooMany:
		return &pulse.Short{
			Pool:     pulse.VideoJobs,
			Reason:   noFurther.Reason,
			Wanted:   1,
			Reserved: noFurther.MaxOpen,
		}
	case noFurther.Reason == event.VideoKeyLimit, noFurther.Reason == event.VideoLimit:
		return &pulse.Short{
			Pool:     pulse.Limit,
			Reason:   noFurther.Reason,
			Free:     int64(noFurther.Left),
			Reserved: int64(noFurther.Expected),
		}
	default:
		return &pulse.Short{
			Pool:     pulse.Balance,
			Reason:   noFurther.Reason,
			Free:     int64(noFurther.Left),
			Reserved: int64(noFurther.Expected),
		}
	}
}
