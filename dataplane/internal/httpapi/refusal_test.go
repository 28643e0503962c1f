package httpapi

import (
	"net/http"
	"testing"

	"modelgateway/dataplane/internal/admission"
	"modelgateway/shared/wire"
)

func TestUnknownRefusalReasonIsServiceUnavailable(t *testing.T) {
	t.Parallel()
	for reason, want := range map[wire.RefusalReason]int{
		wire.LimitInsufficient: http.StatusForbidden, wire.LimitReserved: http.StatusForbidden, wire.NoSlot: http.StatusTooManyRequests,
		wire.BalanceInsufficient: http.StatusPaymentRequired, wire.BalanceReserved: http.StatusPaymentRequired,
		"": http.StatusServiceUnavailable, "something_new": http.StatusServiceUnavailable,
	} {
		err := &admission.RefusedError{Decision: wire.Decision{Reason: reason}}
		if got := publicError(err).Status; got != want {
			t.Errorf("%q: got %d; want %d", reason, got, want)
		}
	}
}
