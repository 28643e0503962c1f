// Command gwctl operates a model gateway over its admin API.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"modelgateway/controlplane/api"
	"modelgateway/controlplane/internal/app"
	"modelgateway/controlplane/internal/app/operator"
	"modelgateway/controlplane/internal/diagnosis"
	"modelgateway/controlplane/internal/gwctl"
	"modelgateway/shared/platform/apidoc"
	"modelgateway/shared/platform/buildinfo"
)

// release is set by the linker for a release build.
var release = ""

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
		In:       os.Stdin,
		Out:      os.Stdout,
		Err:      os.Stderr,
		EnvFunc:  os.Getenv,
		Dir:      dir,
		Version:  buildinfo.Version(release),
		Document: doc,
		DiagnoseFunc: func(ctx context.Context, d gwctl.Direct) *diagnosis.Report {
			return app.Diagnose(ctx, app.Direct{
				PostgresURL: d.PostgresURL,
				NATSURL:     d.NATSURL,
				MonitorURL:  d.MonitorURL,
				Replicas:    d.Replicas,
				Build:       "gwctl " + buildinfo.Version(release),
			})
		},
		RevokeFunc: operator.RevokeDirectly,
	}, args), nil
}
