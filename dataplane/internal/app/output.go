package app

import (
	"context"
	"io"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/dataplane/internal/accesslog"
	"modelgateway/dataplane/internal/config"
	"modelgateway/dataplane/internal/httpapi/tracing"
	"modelgateway/shared/platform/logbuffer"
	"modelgateway/shared/platform/traces"
)

// output is what the proxy tells its operators.
type output struct {
	log *slog.Logger
	// level is that of log and access.
	level  *slog.LevelVar
	access *accesslog.Log
	reg    *prometheus.Registry
	// traces and exporter are nil without a collector.
	traces   *tracing.Tracer
	exporter *traces.Exporter
	lines    *logbuffer.Writer
}

// newOutput returns an output that writes its log and the access log to out. It must be closed.
func newOutput(out io.Writer, cfg *config.Config, version string) (*output, error) {
	level, lines := new(slog.LevelVar), logbuffer.New(out)
	level.Set(cfg.Log.Level)

	o := &output{
		log:    slog.New(slog.NewJSONHandler(lines, &slog.HandlerOptions{Level: level})),
		level:  level,
		access: accesslog.New(lines, level),
		reg:    newRegistry(version),
		lines:  lines,
	}
	if cfg.Tracing.Endpoint == "" {
		return o, nil
	}

	var err error
	if o.exporter, err = traces.Open(context.Background(), traces.Config{
		Endpoint: cfg.Tracing.Endpoint,
		Service:  "modelgateway-dataplane",
		Version:  version,
		Instance: cfg.Name,
		Log:      o.log,
	}); err != nil {
		lines.Close()
		return nil, err
	}

	o.traces = &tracing.Tracer{
		Spans:        o.exporter.Tracer("modelgateway/dataplane"),
		SampleRatio:  cfg.Tracing.SampleRatio,
		TrustClients: cfg.Tracing.TrustClients,
	}
	return o, nil
}

// close writes the last lines.
func (o *output) close() { o.lines.Close() }

// closeTraces exports the last traces. Lost ones are no reason to fail.
func (o *output) closeTraces(ctx context.Context) {
	if o.exporter == nil {
		return
	}
	if err := o.exporter.Close(ctx); err != nil {
		o.log.WarnContext(ctx, "the last traces were not exported", "error", err)
	}
}
