package tracing_test

import (
	"net/http"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"

	"modelgateway/dataplane/internal/httpapi/finished"
	"modelgateway/dataplane/internal/httpapi/tracing"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/event"
)

// BenchmarkRequest measures what the traces of a request with one attempt add to it. The spans are not exported.
func BenchmarkRequest(b *testing.B) {
	provider := sdk.NewTracerProvider(sdk.WithSampler(sdk.AlwaysSample()))
	usage := &event.Usage{Cost: 20}
	for name, tracer := range map[string]*tracing.Tracer{
		"off":         nil,
		"not sampled": {Spans: provider.Tracer("bench")},
		"sampled":     {Spans: provider.Tracer("bench"), SampleRatio: 1},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			header, at := http.Header{}, time.Now()
			for b.Loop() {
				r := tracer.Begin(header, at)
				r.Admission().End("", nil)
				r.Attempt(catalogkv.Chat, "provider", "route", "model").End("", usage)
				if r == nil {
					continue
				}
				r.End(&finished.Request{ID: "req", Method: "POST", Endpoint: "/v1/chat/completions", Outcome: "completed", Model: "model", Status: 200, Attempts: 1, Usage: usage})
			}
		})
	}
}
