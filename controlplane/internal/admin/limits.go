package admin

import (
	"context"
	"errors"
	"time"

	"modelgateway/shared/money"
)

// ErrLimitReached is returned for a change that would exceed a limit of the token.
var ErrLimitReached = errors.New("admin: a daily limit of the token is reached")

// Limits bound the use of a token in a day of UTC, so that a stolen token does bounded harm. A nil
// member is no limit.
type Limits struct {
	// CreditsPerDay bounds the sum of the absolute amounts of booked credits, refunds and corrections.
	CreditsPerDay *money.Nano `json:"credits_per_day,omitempty"`
	// RevealsPerDay bounds how often secrets of API keys are shown.
	RevealsPerDay *int64 `json:"reveals_per_day,omitempty"`
}

type limitsKey struct{}

// WithLimits returns a context in which changes obey the limits.
func WithLimits(ctx context.Context, l Limits) context.Context {
	return context.WithValue(ctx, limitsKey{}, l)
}

// LimitsOf returns the limits of a context; none if it has none.
func LimitsOf(ctx context.Context) Limits {
	l, _ := ctx.Value(limitsKey{}).(Limits)
	return l
}

// UntilReset returns how long it is until the limits of the day are reset.
func UntilReset(now time.Time) time.Duration {
	now = now.UTC()
	return now.Truncate(24 * time.Hour).Add(24 * time.Hour).Sub(now)
}
