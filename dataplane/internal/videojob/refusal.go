package videojob

import (
	"fmt"
	"net/http"
	"time"

	"modelgateway/shared/apierr"
	"modelgateway/shared/event"
)

// RefusedError means that the account or key may have no further job now.
type RefusedError struct{ event.VideoRefusal }

// Error returns the reason.
func (e *RefusedError) Error() string { return "videojob: creation refused: " + e.Reason }

// retryAfter is the pause after which an account with too many open jobs may try again.
const retryAfter = 10 * time.Second

// Public returns the error for the client, nil for a reason that a later release of
// the control plane has added.
func (e *RefusedError) Public() *apierr.Error {
	switch e.Reason {
	case event.VideoTooMany:
		public := apierr.New(
			http.StatusTooManyRequests,
			apierr.RateLimitExceeded,
			fmt.Sprintf(
				"This account has as many open video jobs as it may have, %d. Please try again when one of them has ended.",
				e.MaxOpen,
			),
		)
		public.RetryAfter = retryAfter
		return public
	case event.VideoKeyLimit:
		return apierr.New(http.StatusForbidden, apierr.SpendLimitExceeded, e.short("this API key's spend limit", "its "))
	case event.VideoLimit:
		return apierr.New(
			http.StatusForbidden,
			apierr.SpendLimitExceeded,
			e.short(fmt.Sprintf("the spend limit %s of %s", e.LimitID, e.Scope.Owner()), ""),
		)
	case event.VideoBalance:
		return apierr.New(http.StatusPaymentRequired, apierr.InsufficientQuota, e.short("the balance", ""))
	default:
		return nil
	}
}

// short says that what is left of something is spent, or needed for open jobs, which whose precedes.
func (e *RefusedError) short(of, whose string) string {
	left := max(e.Left, 0)
	if e.Expected == 0 {
		return fmt.Sprintf("Nothing is left of %s for a video job: %s remains%s.", of, left, e.until())
	}
	return fmt.Sprintf(
		"The rest of %s is needed for %sopen video jobs: %s remains%s, they are expected to cost %s.",
		of,
		whose,
		left,
		e.until(),
		e.Expected,
	)
}

// ResetsAt returns when the window of the limit ends, the zero time if it does not.
func (e *RefusedError) ResetsAt() time.Time {
	if e.ResetsMS == 0 {
		return time.Time{}
	}
	return time.UnixMilli(e.ResetsMS)
}

func (e *RefusedError) until() string {
	if e.ResetsMS == 0 {
		return ""
	}
	return " until " + e.ResetsAt().UTC().Format(time.RFC3339)
}
