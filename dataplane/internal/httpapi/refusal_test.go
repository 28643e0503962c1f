package httpapi

import (
	"net/http"
	"testing"

	"modelgateway/dataplane/internal/admission"
	"modelgateway/shared/lease"
)

// TestRefusalOfALaterRelease: a reason that this release does not know is no
// word about the client's money.
func TestRefusalOfALaterRelease(t *testing.T) {
	t.Parallel()
	for reason, want := range map[lease.Reason]int{
		lease.LimitSpent: http.StatusForbidden, lease.LimitHeld: http.StatusForbidden, lease.NoSlot: http.StatusTooManyRequests,
		lease.BalanceSpent: http.StatusPaymentRequired, lease.BalanceHeld: http.StatusPaymentRequired,
		"": http.StatusServiceUnavailable, "something_new": http.StatusServiceUnavailable,
	} {
		err := &admission.RefusedError{Decision: lease.Decision{Reason: reason}}
		if got := publicError(err).Status; got != want {
			t.Errorf("%q: got %d; want %d", reason, got, want)
		}
	}
}
