// Package traces exports spans to an OpenTelemetry collector over OTLP/HTTP.
//
// Spans wait in a bounded queue and are sent in the background. If the collector is not reachable, spans are lost and
// nothing else happens: ending a span never waits.
package traces

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

const (
	// exportTimeout bounds the export of one batch with its repetitions, closeTimeout that of the last spans.
	exportTimeout = 10 * time.Second
	closeTimeout  = 3 * time.Second
)

// Config names the collector and the program.
type Config struct {
	// Endpoint is the URL of the receiver, such as http://collector:4318/v1/traces. Without a path, /v1/traces is meant.
	Endpoint string
	// Service, Version and Instance identify the program in the traces.
	Service, Version, Instance string
	// Log gets a line when exports begin to fail and when they work again.
	Log *slog.Logger
}

// CheckEndpoint returns an error unless the text is empty or the URL of a receiver.
func CheckEndpoint(text string) error {
	if text == "" {
		return nil
	}
	if u, err := url.Parse(text); err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return errors.New("is not an http or https URL")
	}
	return nil
}

// Exporter exports the spans of its tracers. It is safe for concurrent use.
type Exporter struct{ provider *sdk.TracerProvider }

// Open returns an Exporter. It connects when the first spans are exported. Every span of its tracers is exported: the
// caller decides which requests are traced. Close must be called.
func Open(ctx context.Context, cfg Config) (*Exporter, error) {
	receiver, err := url.Parse(cfg.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	if receiver.Path == "" || receiver.Path == "/" {
		receiver.Path = "/v1/traces"
	}

	client, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(receiver.String()), otlptracehttp.WithTimeout(exportTimeout),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{
			Enabled:         true,
			InitialInterval: time.Second,
			MaxInterval:     closeTimeout,
			MaxElapsedTime:  exportTimeout,
		}))
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}

	about := resource.NewSchemaless(
		attribute.String("service.name", cfg.Service),
		attribute.String("service.version", cfg.Version),
		attribute.String("service.instance.id", cfg.Instance),
	)

	return &Exporter{sdk.NewTracerProvider(sdk.WithResource(about), sdk.WithSampler(sdk.AlwaysSample()),
		sdk.WithBatcher(&reported{SpanExporter: client, log: cfg.Log}, sdk.WithExportTimeout(exportTimeout)))}, nil
}

// Tracer returns the tracer of a package.
func (e *Exporter) Tracer(name string) trace.Tracer { return e.provider.Tracer(name) }

// Close exports the remaining spans, which takes no longer than a few seconds, and stops.
func (e *Exporter) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	if err := e.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("traces: close: %w", err)
	}
	return nil
}

// reported logs when exports begin to fail and when they work again. It returns no error, because OpenTelemetry would
// write each of them to a log of its own.
type reported struct {
	sdk.SpanExporter
	log     *slog.Logger
	failing atomic.Bool
}

func (r *reported) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := r.SpanExporter.ExportSpans(ctx, spans)
	switch failing := err != nil; {
	case r.failing.Swap(failing) == failing:
	case failing:
		r.log.WarnContext(ctx, "export of traces failed; spans are lost until it works again", "error", err, "spans", len(spans))
	default:
		r.log.InfoContext(ctx, "export of traces works again")
	}
	return nil
}
