package httpapi

import (
	"errors"
	"time"

	"modelgateway/dataplane/internal/admission"
	"modelgateway/dataplane/internal/auth"
	"modelgateway/dataplane/internal/videojob"
	"modelgateway/shared/apierr"
	"modelgateway/shared/event"
	"modelgateway/shared/pulse"
	"modelgateway/shared/wire"
)

// countRefusal counts a request that ended with an error before a provider was called. Without a usage record, this is
// the only trace that it leaves beside its line in the access log.
func (s *Server) countRefusal(x *exchange, outcome string, now time.Time) {
	if x.attempts > 0 || x.usage != nil || (outcome != outcomeRefused && outcome != outcomeFailed && outcome != outcomeMaintenance) {
		return
	}
	q := pulse.Refusal{
		Code:      string(x.code),
		Status:    x.status,
		RequestID: x.id,
		Model:     x.model,
		Short:     x.short(),
		Reason:    reasonOf(x.failure),
	}
	if x.key != nil {
		q.Account, q.Key = x.key.AccountID, x.key.KeyID
	}
	s.Refusals.Record(now, &q)
}

// reasonOf returns why a request was refused, if its code does not say that: one of the reasons of package pulse, or empty.
func reasonOf(err error) string {
	_, inactive := errors.AsType[*auth.InactiveError](err)
	public, _ := errors.AsType[*apierr.Error](err)
	switch {
	case inactive, errors.Is(err, admission.ErrKey):
		return pulse.ReasonKeyInactive
	case errors.Is(err, errMaintenance):
		return pulse.ReasonMaintenance
	case errors.Is(err, admission.ErrNoSession):
		return pulse.ReasonNoSession
	case errors.Is(err, admission.ErrNoSpool):
		return pulse.ReasonNoSpool
	case isBusy(err):
		return pulse.ReasonNoRoom
	case public != nil && public.Message == errNoRoute.Message:
		return pulse.ReasonNoRoute
	case errors.Is(err, auth.ErrUnavailable), errors.Is(err, admission.ErrUnavailable):
		return pulse.ReasonUndecided
	default:
		return ""
	}
}

// short returns what the request lacked, nil if it was not refused because a pool was short.
func (x *exchange) short() *pulse.Short {
	var refused *admission.RefusedError
	var noFurther *videojob.RefusedError
	switch {
	case errors.As(x.failure, &refused):
		pool := map[wire.PoolKind]pulse.ShortPool{
			wire.Balance:  pulse.Balance,
			wire.KeyLimit: pulse.KeyLimit,
			wire.Slots:    pulse.Slots,
		}[refused.Reason.Pool()]
		return &pulse.Short{
			Pool:     pool,
			Reason:   string(refused.Reason),
			Wanted:   refused.Wanted,
			Free:     refused.Free,
			Reserved: refused.Reserved,
		}
	case !errors.As(x.failure, &noFurther):
		return nil
	case noFurther.Reason == event.VideoTooMany:
		return &pulse.Short{
			Pool:     pulse.VideoJobs,
			Reason:   noFurther.Reason,
			Wanted:   1,
			Reserved: noFurther.MaxOpen,
		}
	case noFurther.Reason == event.VideoKeyLimit:
		return &pulse.Short{
			Pool:     pulse.KeyLimit,
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

// line returns the request as operators see it who watch.
func (x *exchange) line(now time.Time, outcome string) *pulse.Line {
	l := &pulse.Line{
		EndedMS:     now.UnixMilli(),
		RequestID:   x.id,
		Method:      x.method,
		Endpoint:    x.endpoint,
		Status:      x.status,
		Outcome:     outcome,
		Code:        string(x.code),
		Model:       x.model,
		Stream:      x.stream,
		End:         x.end,
		Provider:    x.provider,
		Route:       x.route,
		Attempts:    x.attempts,
		DurationUS:  now.Sub(x.started).Microseconds(),
		UpstreamUS:  x.upstream.Microseconds(),
		FirstByteUS: x.firstByte.Microseconds(),
		Short:       x.short(),
	}
	if x.key != nil {
		l.Account, l.Key = x.key.AccountID, x.key.KeyID
	}
	if e := x.usage; e != nil {
		l.Charged, l.InputTokens, l.OutputTokens, l.CostNano = true, e.Usage.TotalInput(), e.Usage.Output, int64(e.Cost)
	}

	return l
}
