package httpapi_test

import (
	"context"
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"modelgateway/dataplane/internal/httpapi/tracing"
	"modelgateway/shared/platform/traces"
)

// collected is an OTLP receiver.
type collected struct {
	*httptest.Server
	mu    sync.Mutex
	spans []*otlp.Span
	text  strings.Builder
}

func newCollector(t *testing.T) *collected {
	t.Helper()
	c := &collected{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var export collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &export)
		}
		if err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.text.Write(body)
		for _, resource := range export.GetResourceSpans() {
			for _, scope := range resource.GetScopeSpans() {
				c.spans = append(c.spans, scope.GetSpans()...)
			}
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(c.Close)
	return c
}

// trace makes the gateway export traces to the collector. Closing the exporter exports the spans.
func (c *collected) trace(t *testing.T, tracer tracing.Tracer) (*tracing.Tracer, *traces.Exporter) {
	t.Helper()
	exporter, err := traces.Open(t.Context(), traces.Config{Endpoint: c.URL, Service: "test", Version: "1", Instance: "proxy", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	tracer.Spans = exporter.Tracer("test")
	return &tracer, exporter
}

// named returns the spans whose name has a prefix.
func (c *collected) named(prefix string) []*otlp.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(func(yield func(*otlp.Span) bool) {
		for _, s := range c.spans {
			if strings.HasPrefix(s.GetName(), prefix) && !yield(s) {
				return
			}
		}
	})
}

// attribute returns the value of an attribute of a span; nil if it has none.
func attribute(s *otlp.Span, key string) any {
	for _, a := range s.GetAttributes() {
		if a.GetKey() != key {
			continue
		}
		switch v := a.GetValue().GetValue().(type) {
		case *common.AnyValue_StringValue:
			return v.StringValue
		case *common.AnyValue_IntValue:
			return v.IntValue
		}
	}
	return nil
}

const (
	clientTrace  = "0af7651916cd43dd8448eb211c80319c"
	clientSpan   = "b7ad6b7169203331"
	clientParent = "00-" + clientTrace + "-" + clientSpan + "-01"
)

func TestRequestIsTracedWithItsAdmissionAndAttempts(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	tracer, exporter := c.trace(t, tracing.Tracer{SampleRatio: 1})
	g := newGatewayWith(t, options{traces: tracer}, jsonAnswer(http.StatusInternalServerError, "{}"), jsonAnswer(200, chatJSON))
	const prompt = "a secret prompt"
	g.post("/v1/chat/completions", `{"model":"text","messages":[{"role":"user","content":"`+prompt+`"}]}`, "Traceparent", clientParent)
	lines := g.accessLines()
	if err := exporter.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	requests, admissions, attempts := c.named("POST /v1/chat/completions"), c.named("admission"), c.named("chat up-model")
	if len(requests) != 1 || len(admissions) != 1 || len(attempts) != 2 {
		t.Fatalf("%d requests, %d admissions, %d attempts; want 1, 1 and 2", len(requests), len(admissions), len(attempts))
	}
	request := requests[0]
	for _, child := range slices.Concat(admissions, attempts) {
		if string(child.GetParentSpanId()) != string(request.GetSpanId()) || string(child.GetTraceId()) != string(request.GetTraceId()) {
			t.Errorf("%s is not a part of the request", child.GetName())
		}
	}
	for _, want := range []struct {
		span *otlp.Span
		key  string
		want any
	}{
		{request, "http.response.status_code", int64(200)},
		{request, "gen_ai.request.model", "text"},
		{request, "gen_ai.usage.input_tokens", int64(10)},
		{request, "gen_ai.usage.output_tokens", int64(5)},
		{request, "mgw.outcome", "completed"},
		{request, "mgw.attempts", int64(2)},
		{request, "mgw.cost_nano", int64(chatCost)},
		{attempts[0], "gen_ai.provider.name", "prv_0"},
		{attempts[0], "error.type", "unavailable"},
		{attempts[1], "gen_ai.provider.name", "prv_1"},
		{attempts[1], "gen_ai.operation.name", "chat"},
		{attempts[1], "gen_ai.usage.output_tokens", int64(5)},
		{attempts[1], "error.type", nil},
	} {
		if got := attribute(want.span, want.key); got != want.want {
			t.Errorf("%s of %s is %v; want %v", want.key, want.span.GetName(), got, want.want)
		}
	}
	id := hex.EncodeToString(request.GetTraceId())
	if got, want := g.spool.next(t).Trace, "00-"+id+"-"+hex.EncodeToString(request.GetSpanId())+"-01"; got != want {
		t.Errorf("the usage event has the trace %q; want that of the request, %q", got, want)
	}
	if id == clientTrace || len(request.GetLinks()) != 1 || hex.EncodeToString(request.GetLinks()[0].GetTraceId()) != clientTrace {
		t.Errorf("trace %s with links %v; want a trace of its own with a link to the client's", id, request.GetLinks())
	}
	if lines[0]["trace_id"] != id {
		t.Errorf("the access log has the trace %v; want %s", lines[0]["trace_id"], id)
	}
	for _, secret := range []string{prompt, "Hello there", g.key, "secret-1"} {
		if strings.Contains(c.text.String(), secret) {
			t.Errorf("the spans show %q", secret)
		}
	}
	for _, sim := range g.sims {
		for _, call := range sim.received() {
			if call.header.Get("Traceparent") != "" {
				t.Errorf("a provider got the trace context %q", call.header.Get("Traceparent"))
			}
		}
	}
}

func TestClientsDecideAboutTracesOnlyIfTheyAreTrusted(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name          string
		tracer        tracing.Tracer
		parent        string
		traced, joins bool
	}{
		{"trusted, traced", tracing.Tracer{TrustClients: true}, clientParent, true, true},
		{"trusted, not traced", tracing.Tracer{TrustClients: true, SampleRatio: 1}, strings.TrimSuffix(clientParent, "1") + "0", false, false},
		{"trusted, without context", tracing.Tracer{TrustClients: true, SampleRatio: 1}, "", true, false},
		{"trusted, malformed context", tracing.Tracer{TrustClients: true, SampleRatio: 1}, "00-zz", true, false},
		{"not trusted, no sample", tracing.Tracer{}, clientParent, false, false},
		{"not trusted, sample", tracing.Tracer{SampleRatio: 1}, clientParent, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newCollector(t)
			tracer, exporter := c.trace(t, tt.tracer)
			g := newGatewayWith(t, options{traces: tracer}, jsonAnswer(200, chatJSON))
			g.post("/v1/chat/completions", chatBody, "Traceparent", tt.parent)
			g.server.Close()
			if err := exporter.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			spans := c.named("POST ")
			if (len(spans) == 1) != tt.traced {
				t.Fatalf("%d spans; want a trace: %t", len(spans), tt.traced)
			}
			if tt.traced && (hex.EncodeToString(spans[0].GetTraceId()) == clientTrace) != tt.joins {
				t.Errorf("trace %x; want that of the client: %t", spans[0].GetTraceId(), tt.joins)
			}
		})
	}
}

// The collector accepts connections and never answers.
func TestSilentCollectorDelaysNoRequest(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-ctx.Done():
		case <-r.Context().Done():
		}
	}))
	defer silent.Close()
	defer cancel()
	c := &collected{Server: silent}
	tracer, exporter := c.trace(t, tracing.Tracer{SampleRatio: 1})
	g := newGatewayWith(t, options{traces: tracer}, jsonAnswer(200, chatJSON))
	for range 3000 { // more spans than the queue holds
		if got := g.post("/v1/chat/completions", `{"model":"nosuch","messages":[]}`); got.status != http.StatusNotFound {
			t.Fatalf("got %d %s", got.status, got.body)
		}
		<-g.served
	}
	cancel()
	if err := exporter.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
