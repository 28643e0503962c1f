// Package finished has the facts about an answered request that its log line, its metrics, its span and the pages of
// operators show. The facts never include content: no prompt, no answer, no header and no secret.
package finished

import (
	"log/slog"
	"net/http"
	"time"

	"modelgateway/dataplane/internal/accesslog"
	"modelgateway/dataplane/internal/httpapi/refused"
	"modelgateway/shared/apierr"
	"modelgateway/shared/event"
	"modelgateway/shared/pulse"
)

// The outcomes of a request, in the metrics and in the access log. A request is refused if the client has to change
// something: the request, the key, the balance or the rate.
const (
	Completed  = "completed"
	Failed     = "failed"
	ClientGone = "client_gone"
	Refused    = "refused"
	// Maintenance: an operator has closed what the request was for.
	Maintenance = "maintenance"
)

// Request is an answered request.
type Request struct {
	ID       string
	TraceID  string // empty if the request is not traced
	Method   string
	Endpoint string
	// AccountID and KeyID are empty if the key is unknown, ProjectID also if it is in none.
	AccountID, ProjectID, KeyID string
	Model                       string
	Stream                      bool
	// Provider and Route are those of the last call; empty if there was none. Attempts counts the calls.
	Provider, Route string
	Attempts        int
	// Usage is the usage event; nil if there is none.
	Usage   *event.Usage
	Status  int
	Code    apierr.Code
	Outcome string
	// End is why a stream ended; empty for other answers.
	End string
	Err error
	At  time.Time
	// Took is the time from the arrival of the headers to the end of the answer, FirstByte that to its first bytes, and
	// Upstream the time spent waiting for providers.
	Took, FirstByte, Upstream time.Duration
}

// Log writes the request's line of the access log.
func (r *Request) Log(log *accesslog.Log) {
	var room [22]slog.Attr
	attrs := append(
		room[:0],
		slog.String("request_id", r.ID),
		slog.String("method", r.Method),
		slog.String("endpoint", r.Endpoint),
		slog.Int("status", r.Status),
		slog.String("outcome", r.Outcome),
		slog.Int64("duration_us", r.Took.Microseconds()),
	)
	if r.TraceID != "" {
		attrs = append(attrs, slog.String("trace_id", r.TraceID))
	}
	if r.AccountID != "" {
		attrs = append(attrs, slog.String("account_id", r.AccountID), slog.String("key_id", r.KeyID))
	}
	if r.Model != "" {
		attrs = append(attrs, slog.String("model", r.Model), slog.Bool("stream", r.Stream))
	}

	if r.Provider != "" {
		attrs = append(
			attrs,
			slog.String("provider", r.Provider),
			slog.String("route", r.Route),
			slog.Int("attempts", r.Attempts),
			slog.Int64("upstream_us", r.Upstream.Microseconds()),
			slog.Int64("first_byte_us", r.FirstByte.Microseconds()),
		)
	}
	if e := r.Usage; e != nil {
		attrs = append(
			attrs,
			slog.Int64("input_tokens", e.Usage.TotalInput()),
			slog.Int64("output_tokens", e.Usage.Output),
			slog.Int64("cost_nano", int64(e.Cost)),
		)
	}

	if r.Code != "" {
		attrs = append(attrs, slog.String("code", string(r.Code)))
	}
	if r.End != "" {
		attrs = append(attrs, slog.String("end", r.End))
	}
	if r.Err != nil {
		attrs = append(attrs, slog.String("error", r.Err.Error()))
	}

	level := slog.LevelInfo
	if r.Outcome == Failed {
		level = slog.LevelWarn
	}
	log.Line(level, r.At, "request", attrs)
}

// Refusal returns the request as one that ended with an error before a provider was called. Without a usage record, this is
// the only trace that it leaves beside its line in the access log. ok reports whether it is one.
func (r *Request) Refusal() (q pulse.Refusal, ok bool) {
	if r.Status < http.StatusBadRequest || r.Attempts > 0 || r.Usage != nil {
		return pulse.Refusal{}, false
	}
	if r.Outcome != Refused && r.Outcome != Failed && r.Outcome != Maintenance {
		return pulse.Refusal{}, false
	}

	return pulse.Refusal{
		Account:   r.AccountID,
		Key:       r.KeyID,
		Code:      string(r.Code),
		Status:    r.Status,
		RequestID: r.ID,
		Model:     r.Model,
		Short:     refused.Short(r.Err),
		Reason:    refused.Reason(r.Err),
	}, true
}

// Line returns the request as operators see it who watch.
func (r *Request) Line() *pulse.Line {
	l := &pulse.Line{
		EndedMS:     r.At.UnixMilli(),
		RequestID:   r.ID,
		Method:      r.Method,
		Endpoint:    r.Endpoint,
		Status:      r.Status,
		Outcome:     r.Outcome,
		Code:        string(r.Code),
		Account:     r.AccountID,
		Project:     r.ProjectID,
		Key:         r.KeyID,
		Model:       r.Model,
		Stream:      r.Stream,
		End:         r.End,
		Provider:    r.Provider,
		Route:       r.Route,
		Attempts:    r.Attempts,
		DurationUS:  r.Took.Microseconds(),
		UpstreamUS:  r.Upstream.Microseconds(),
		FirstByteUS: r.FirstByte.Microseconds(),
		Short:       refused.Short(r.Err),
	}
	if e := r.Usage; e != nil {
		l.Charged, l.InputTokens, l.OutputTokens, l.CostNano = true, e.Usage.TotalInput(), e.Usage.Output, int64(e.Cost)
	}

	return l
}
