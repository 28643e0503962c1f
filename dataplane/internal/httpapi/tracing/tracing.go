// Package tracing makes the spans of client requests: the request, its admission and its attempts.
//
// The spans have identifiers and figures, never content. A request that is not traced has a nil *Request: all methods but
// End may be called on it and do nothing.
package tracing

import (
	"context"
	"math/rand/v2"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"modelgateway/dataplane/internal/httpapi/finished"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/event"
)

// Tracer decides which requests are traced. A nil Tracer traces none.
type Tracer struct {
	// Spans makes the spans, all of which are exported.
	Spans trace.Tracer
	// SampleRatio is the part of the requests that are traced, from 0 to 1.
	SampleRatio float64
	// TrustClients continues the traces of clients: a request with a trace context is traced if its client traces it.
	// Otherwise each request has a trace of its own, which links to that of the client.
	TrustClients bool
}

// Request is the trace of one request.
type Request struct {
	tracer trace.Tracer
	ctx    context.Context //nolint:containedctx // it holds the span of the request, not its lifetime
	span   trace.Span
}

// Begin begins the trace of a request that arrived at a time; nil if it is not traced.
func (t *Tracer) Begin(h http.Header, at time.Time) *Request {
	if t == nil {
		return nil
	}

	ctx := context.Background()
	var client trace.SpanContext
	if h["Traceparent"] != nil {
		client = trace.SpanContextFromContext(propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(h)))
	}

	joins := t.TrustClients && client.IsValid()
	sampled := joins && client.IsSampled()
	if !joins {
		sampled = rand.Float64() < t.SampleRatio
	}
	if !sampled {
		return nil
	}

	options := []trace.SpanStartOption{trace.WithTimestamp(at), trace.WithSpanKind(trace.SpanKindServer)}
	switch {
	case joins:
		ctx = trace.ContextWithRemoteSpanContext(ctx, client)
	case client.IsValid():
		options = append(options, trace.WithLinks(trace.Link{SpanContext: client}))
	}

	r := &Request{tracer: t.Spans}
	r.ctx, r.span = t.Spans.Start(ctx, "request", options...) //nolint:spancheck // Request.End ends it
	return r
}

// ID returns the id of the trace; empty if the request is not traced.
func (r *Request) ID() string {
	if r == nil {
		return ""
	}
	return r.span.SpanContext().TraceID().String()
}

// Context returns the context of the request's span for the settlement, as a traceparent header has it; empty if the request is
// not traced.
func (r *Request) Context() string {
	if r == nil {
		return ""
	}
	span := r.span.SpanContext()
	return "00-" + span.TraceID().String() + "-" + span.SpanID().String() + "-01"
}

// End ends the span of a traced request.
func (r *Request) End(q *finished.Request) {
	name := q.Method
	if q.Endpoint != "" {
		name += " " + q.Endpoint
	}

	r.span.SetName(name)
	r.span.SetAttributes(
		attribute.String("http.request.method", q.Method),
		attribute.String("http.route", q.Endpoint),
		attribute.Int("http.response.status_code", q.Status),
		attribute.String("mgw.request_id", q.ID),
		attribute.String("mgw.outcome", q.Outcome),
		attribute.Int("mgw.attempts", q.Attempts),
		attribute.Int64("mgw.first_byte_us", q.FirstByte.Microseconds()),
	)

	if q.Model != "" {
		r.span.SetAttributes(attribute.String("gen_ai.request.model", q.Model))
	}

	r.span.SetAttributes(usageAttributes(q.Usage)...)
	if q.Code != "" {
		r.span.SetAttributes(attribute.String("error.type", string(q.Code)))
	}
	if q.Outcome == finished.Failed {
		r.span.SetStatus(codes.Error, q.Outcome)
	}

	r.span.End()
}

func usageAttributes(e *event.Usage) []attribute.KeyValue {
	if e == nil {
		return nil
	}
	return []attribute.KeyValue{
		attribute.Int64("gen_ai.usage.input_tokens", e.Usage.TotalInput()), attribute.Int64("gen_ai.usage.output_tokens", e.Usage.Output),
		attribute.Int64("mgw.cost_nano", int64(e.Cost)),
	}
}

// Span is a part of a request. The zero Span does nothing.
type Span struct{ span trace.Span }

// Admission begins the span of the admission.
func (r *Request) Admission() Span {
	if r == nil {
		return Span{}
	}
	return r.part("admission")
}

func (r *Request) part(name string, options ...trace.SpanStartOption) Span {
	_, span := r.tracer.Start(r.ctx, name, options...) //nolint:spancheck // Span.End ends it
	return Span{span}                                  //nolint:spancheck // as above
}

// Attempt begins the span of a call of a provider for its own name of a model.
func (r *Request) Attempt(f catalogkv.Format, provider, route, model string) Span {
	if r == nil {
		return Span{}
	}
	operation := "chat"
	if f.Type() != catalogkv.Text {
		operation = "generate_content"
	}
	return r.part(operation+" "+model, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("gen_ai.operation.name", operation), attribute.String("gen_ai.provider.name", provider),
		attribute.String("gen_ai.request.model", model), attribute.String("mgw.route", route)))
}

// End ends the span. reason is why it failed; empty if it did not. usage may be nil.
func (s Span) End(reason string, usage *event.Usage) {
	if s.span == nil {
		return
	}
	s.span.SetAttributes(usageAttributes(usage)...)
	if reason != "" {
		s.span.SetAttributes(attribute.String("error.type", reason))
		s.span.SetStatus(codes.Error, reason)
	}
	s.span.End()
}
