// Command dataplane is a proxy of the gateway: it serves the public API and
// forwards requests to providers.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/pflag"

	"modelgateway/dataplane/internal/app"
	"modelgateway/dataplane/internal/config"
)

// version is set by the linker for a release.
var version = ""

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
	show := flags.Bool("version", false, "print the version and exit")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return nil
		}
		return fmt.Errorf("read flags: %w", err)
	}
	if *show {
		fmt.Fprintln(os.Stdout, "dataplane", buildVersion())
		return nil
	}
	cfg, err := config.Load(flags)
	if err == nil {
		err = cfg.Validate()
	}
	if err != nil {
		return err
	}
	relaxGC()
	return app.Run(ctx, cfg, os.Stderr, buildVersion())
}

// gcPercent lets the heap grow to five times what is live: a proxy's live heap
// is small, and collecting it half as often saves a tenth of the CPU time.
const gcPercent = 400

// relaxGC sets it unless GOGC says otherwise. GOMEMLIMIT bounds it.
func relaxGC() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// buildVersion is the release, or the commit that was built.
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
