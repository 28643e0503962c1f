package app

import (
	"io"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/dataplane/internal/accesslog"
)

// output is what the proxy tells its operators.
type output struct {
	log *slog.Logger
	// level is that of log and access.
	level  *slog.LevelVar
	access *accesslog.Log
	reg    *prometheus.Registry
}

func newOutput(out io.Writer, lowest slog.Level, version string) *output {
	level := new(slog.LevelVar)
	level.Set(lowest)
	return &output{
		log: slog.New(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: level})), level: level, access: accesslog.New(out, level), reg: newRegistry(version),
	}
}
