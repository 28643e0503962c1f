// Command dataplane runs a proxy: it serves the public API and forwards
// requests to providers.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"

	"modelgateway/dataplane/internal/app"
	"modelgateway/dataplane/internal/config"
	"modelgateway/shared/platform/buildinfo"
	"modelgateway/shared/platform/heap"
)

// release is set by the linker for a release build.
var release = ""

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "dataplane:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := pflag.NewFlagSet("dataplane", pflag.ContinueOnError)
	config.AddFlags(flags)
	showVersion := flags.Bool("version", false, "Print the version and exit.")
	checkOnly := flags.Bool("check", false, "Check the settings and the files of secrets, and exit.")

	if err := flags.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return nil
		}
		return fmt.Errorf("parse flags: %w", err)
	}

	if *showVersion {
		fmt.Fprintln(os.Stdout, "dataplane", buildinfo.Version(release))
		return nil
	}

	cfg, err := config.Load(flags)
	if err == nil {
		err = cfg.Validate()
	}
	if err != nil {
		return err
	}

	if *checkOnly {
		fmt.Fprintln(os.Stdout, "the settings are valid")
		return nil
	}

	if os.Getenv("GOGC") == "" {
		heap.Tune()
	}

	return app.Run(ctx, cfg, os.Stderr, buildinfo.Version(release))
}
