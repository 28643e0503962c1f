package refused

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"modelgateway/dataplane/internal/admission"
	"modelgateway/dataplane/internal/videojob"
	"modelgateway/shared/apierr"
	"modelgateway/shared/limit"
	"modelgateway/shared/money"
	"modelgateway/shared/wire"
)

// Unavailable returns the error for a request that cannot be decided now.
func Unavailable() *apierr.Error {
	return apierr.New(http.StatusServiceUnavailable, apierr.ServiceUnavailable, "The service is temporarily unavailable. Please try again.")
}

// NoUnits is the error for a request that was refused admission.
func NoUnits(r *admission.RefusedError) *apierr.Error {
	available, reserved := money.Nano(max(r.Free, 0)), money.Nano(r.Reserved)
	switch r.Reason {
	case wire.LimitInsufficient:
		message := fmt.Sprintf("The %s is reached: %s remains%s.", whichLimit(r), available, whenReset(r))
		if available > 0 {
			message = fmt.Sprintf(
				"The %s leaves %s%s, and this request may cost %s. Ask for less output, or have the limit raised.",
				whichLimit(r),
				available,
				whenReset(r),
				money.Nano(r.Wanted),
			)
		}
		return apierr.New(http.StatusForbidden, apierr.SpendLimitExceeded, message)
	case wire.LimitReserved:
		return apierr.New(
			http.StatusForbidden,
			apierr.SpendLimitExceeded,
			fmt.Sprintf(
				"The rest of the %s is reserved for running requests: %s is available, %s is reserved%s.",
				whichLimit(r),
				available,
				reserved,
				whenReset(r),
			),
		)
	case wire.NoSlot:
		owner := "account"
		if r.OfKey {
			owner = "API key"
		}
		return apierr.New(
			http.StatusTooManyRequests,
			apierr.RateLimitExceeded,
			"This "+owner+" has too many concurrent requests. Please try again when one of them has finished.",
		)
	case wire.BalanceReserved:
		return apierr.New(http.StatusPaymentRequired, apierr.InsufficientQuota,
			fmt.Sprintf("The rest of the balance is reserved for running requests: %s is available, %s is reserved.", available, reserved))
	case wire.BalanceInsufficient:
		return apierr.New(http.StatusPaymentRequired, apierr.InsufficientQuota,
			fmt.Sprintf("The balance is exhausted: %s is available, %s is reserved for running requests.", available, reserved))
	default: // a reason that a later release of the control plane has added
		return Unavailable()
	}
}

// whichLimit names the limit that a request was refused for.
func whichLimit(r *admission.RefusedError) string {
	if r.Limit == nil {
		return "spend limit of " + limit.Key.Owner()
	}
	return "spend limit " + r.Limit.Name + " of " + r.Limit.Scope.Owner()
}

// whenReset says when the window of the limit ends.
func whenReset(r *admission.RefusedError) string {
	if r.ResetsAt.IsZero() {
		return ""
	}
	return " until " + r.ResetsAt.UTC().Format(time.RFC3339)
}

// SetLimit sets the headers that say which limit a request was refused for; it has no effect for other refusals.
func SetLimit(h http.Header, err error) {
	l := shortLimit(err)
	if l == nil {
		return
	}
	h["X-Limit-Scope"], h["X-Limit-Id"] = []string{string(l.scope)}, []string{l.id}
	if !l.resetsAt.IsZero() {
		h["X-Limit-Resets-At"] = []string{l.resetsAt.UTC().Format(time.RFC3339)}
	}
}

// limitOf is the limit that a request was refused for. The id is that in the API, of the spend limit of a key that of the key.
type limitOf struct {
	scope    limit.Scope
	id       string
	resetsAt time.Time
}

// shortLimit returns the limit that a request was refused for, nil if it was refused for another reason.
func shortLimit(err error) *limitOf {
	if r, ok := errors.AsType[*videojob.RefusedError](err); ok && r.LimitID != "" {
		return &limitOf{r.Scope, r.LimitID, r.ResetsAt()}
	}
	r, ok := errors.AsType[*admission.RefusedError](err)
	switch {
	case !ok || r.Reason.Pool() != wire.Limit:
		return nil
	case r.Limit == nil: // the spend limit of the key itself
		return &limitOf{limit.Key, r.KeyID, time.Time{}}
	default:
		return &limitOf{r.Limit.Scope, r.Limit.Name, r.ResetsAt}
	}
}
