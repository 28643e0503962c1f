package httpapi

import (
	"time"

	"modelgateway/dataplane/internal/httpapi/refused"
	"modelgateway/shared/pulse"
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
		Short:     refused.Short(x.failure),
		Reason:    refused.Reason(x.failure),
	}
	if x.key != nil {
		q.Account, q.Key = x.key.AccountID, x.key.KeyID
	}
	s.Refusals.Record(now, &q)
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
		Short:       refused.Short(x.failure),
	}
	if x.key != nil {
		l.Account, l.Key = x.key.AccountID, x.key.KeyID
	}
	if e := x.usage; e != nil {
		l.Charged, l.InputTokens, l.OutputTokens, l.CostNano = true, e.Usage.TotalInput(), e.Usage.Output, int64(e.Cost)
	}

	return l
}
