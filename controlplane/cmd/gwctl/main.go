// Command gwctl operates a model gateway over its admin API.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"modelgateway/controlplane/api"
	"modelgateway/controlplane/internal/app"
	"modelgateway/controlplane/internal/diagnosis"
	"modelgateway/controlplane/internal/gwctl"
	"modelgateway/shared/apidoc"
)

// version is set by the linker for a release.
var version = ""

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code, err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gwctl:", err)
	}
	os.Exit(code)
}

func run(ctx context.Context, args []string) (int, error) {
	dir, err := os.Getwd()
	if err != nil {
		return gwctl.ExitFailure, fmt.Errorf("working directory: %w", err)
	}
	doc, err := apidoc.Parse(api.Document)
	if err != nil {
		return gwctl.ExitFailure, err
	}
	return gwctl.Run(ctx, gwctl.Config{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr, EnvFunc: os.Getenv, Dir: dir, Version: buildVersion(), Document: doc,
		DiagnoseFunc: func(ctx context.Context, d gwctl.Direct) *diagnosis.Report {
			return app.Diagnose(ctx, app.Direct{
				PostgresURL: d.PostgresURL, NATSURL: d.NATSURL, MonitorURL: d.MonitorURL, Replicas: d.Replicas, Build: "gwctl " + buildVersion(),
			})
		},
	}, args), nil
}

// buildVersion returns the release, or the commit of the build.
func buildVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return "devel-" + s.Value[:min(12, len(s.Value))]
			}
		}
	}
	return "devel"
}
