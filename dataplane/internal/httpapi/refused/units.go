package refused

import (
	"fmt"
	"net/http"

	"modelgateway/dataplane/internal/admission"
	"modelgateway/shared/apierr"
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
	case wire.LimitSpent:
		message := fmt.Sprintf("The spend limit of this API key is reached: %s remains.", available)
		if available > 0 {
			message = fmt.Sprintf(
				"The spend limit of this API key leaves %s, and this request may cost %s. Ask for less output, or have the limit raised.",
				available,
				money.Nano(r.Wanted),
			)
		}
		return apierr.New(http.StatusForbidden, apierr.SpendLimitExceeded, message)
	case wire.LimitReserved:
		return apierr.New(
			http.StatusForbidden,
			apierr.SpendLimitExceeded,
			fmt.Sprintf(
				"The rest of this API key's spend limit is reserved for running requests: %s is available, %s is reserved.",
				available,
				reserved,
			),
		)
	case wire.NoSlot:
		return apierr.New(
			http.StatusTooManyRequests,
			apierr.RateLimitExceeded,
			"This account has too many concurrent requests. Please try again when one of them has finished.",
		)
	case wire.BalanceReserved:
		return apierr.New(http.StatusPaymentRequired, apierr.InsufficientQuota,
			fmt.Sprintf("The rest of the balance is reserved for running requests: %s is available, %s is reserved.", available, reserved))
	case wire.BalanceSpent:
		return apierr.New(http.StatusPaymentRequired, apierr.InsufficientQuota,
			fmt.Sprintf("The balance is exhausted: %s is available, %s is reserved for running requests.", available, reserved))
	default: // a reason that a later release of the control plane has added
		return Unavailable()
	}
}
