package bus_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"modelgateway/controlplane/internal/postgres/moneystore"
	"modelgateway/controlplane/internal/settle"
	"modelgateway/shared/event"
)

// traced returns a message of usage whose event carries the context of a request's span.
func (p *env) traced(seq int64, context string) []byte {
	p.t.Helper()
	var batch event.Batch
	if err := json.Unmarshal(p.usage(seq), &batch); err != nil {
		p.t.Fatal(err)
	}
	batch.Events[0] = bytes.Replace(batch.Events[0], []byte(`"cost":10`), []byte(`"cost":10,"trace":"`+context+`"`), 1)
	return batch.AppendJSON(nil)
}

// The settlement of a traced request is a span of its trace. A context that means nothing makes none, and settles all the same.
func TestSettlementOfATracedRequestIsASpan(t *testing.T) {
	t.Parallel()
	p := newEnv(t)
	marks := p.subscribeWatermarks()
	recorder := tracetest.NewSpanRecorder()
	b := p.connectReplica(new(streamCounter))
	b.ConsumeUsage(settle.New(moneystore.NewSettlement(p.db), nil), prometheus.NewRegistry(), sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder)).Tracer("test"))
	const id, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	p.publish(p.usage(1))
	p.publish(p.traced(2, "00-"+id+"-"+parent+"-01"))
	p.publish(p.traced(3, "not a context"))
	p.publish(p.traced(4, "00-"+id+"-"+parent+"-00"))
	p.awaitWatermark(marks, 4)
	p.wantSettled(40)
	b.Stop()
	spans := recorder.Ended()
	if len(spans) != 1 {
		t.Fatalf("%d spans; want that of the traced request", len(spans))
	}
	span := spans[0]
	if span.Name() != "settlement" || span.SpanContext().TraceID().String() != id || span.Parent().SpanID().String() != parent || span.EndTime().Before(span.StartTime()) {
		t.Errorf("the span is %s of trace %s, a part of %s", span.Name(), span.SpanContext().TraceID(), span.Parent().SpanID())
	}
	attributes := attribute.NewSet(span.Attributes()...)
	if cost, ok := attributes.Value("mgw.cost_nano"); !ok || cost.AsInt64() != 10 {
		t.Errorf("the attributes are %v; want the cost", span.Attributes())
	}
}
