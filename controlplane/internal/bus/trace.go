package bus

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"modelgateway/controlplane/internal/settle"
)

// traceSettlement makes a span of the settlement for each event whose request is traced. All events of a batch are settled in
// one transaction, so their spans last as long.
func traceSettlement(spans trace.Tracer, items []settle.Item, began time.Time) {
	if spans == nil {
		return
	}

	ended := time.Now()
	for i := range items {
		e := items[i].Event
		if e == nil || e.Trace == "" {
			continue
		}
		ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": e.Trace})
		if !trace.SpanContextFromContext(ctx).IsSampled() {
			continue
		}
		_, span := spans.Start(
			ctx,
			"settlement",
			trace.WithTimestamp(began),
			trace.WithSpanKind(trace.SpanKindConsumer),
			trace.WithAttributes(
				attribute.String("mgw.request_id", e.RequestID),
				attribute.Int64("mgw.cost_nano", int64(e.Cost)),
				attribute.Int("mgw.batch_events", len(items)),
				attribute.Int64("mgw.settlement_lag_ms", ended.UnixMilli()-e.FinishedMS),
			),
		)
		if items[i].QuarantineReason != "" {
			span.SetAttributes(attribute.String("error.type", "quarantined"))
		}
		span.End(trace.WithTimestamp(ended))
	}
}
