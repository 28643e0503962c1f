// Command controlplane owns the database of the gateway: it serves the admin
// API, hands out leases to proxies and settles what they report.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"modelgateway/controlplane/internal/app"
	"modelgateway/controlplane/internal/config"
)

// version is set by the linker for a release.
var version = ""

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		os.Exit(1) //nolint:gocritic // exitAfterDefer: the process ends, the handler with it
	}
}

func run(ctx context.Context, args []string) error {
	root := &cobra.Command{
		Use:           "controlplane",
		Short:         "The control plane of the model gateway",
		Version:       buildVersion(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	serve := &cobra.Command{
		Use:   "serve",
		Short: "Serve the admin API and the proxies until a signal comes",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return runServe(cmd) },
	}
	migrate := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the database schema up to this version",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return runMigrate(cmd) },
	}
	declare := &cobra.Command{
		Use:   "declare-loss",
		Short: "Declare that Postgres has lost commits, as after restoring an older copy",
		Long: `Declare that Postgres has lost commits. Running control planes find that out by
themselves, however little is lost, as long as NATS has kept the bucket mgw_anchor;
this is for the case that it has not, or that something else than the end of what
was committed is missing. A new epoch begins: every session is over, nothing is
granted for as long as a session lasts, and usage is settled once more from the
stream and the spools of the proxies. Running control planes take it up.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runDeclareLoss(cmd) },
	}
	show := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		Run:   func(cmd *cobra.Command, _ []string) { fmt.Fprintln(cmd.OutOrStdout(), "controlplane", buildVersion()) },
	}
	config.AddFlags(serve.Flags())
	config.AddFlags(migrate.Flags())
	config.AddFlags(declare.Flags())
	root.AddCommand(serve, migrate, declare, show)
	root.SetArgs(args)
	return root.ExecuteContext(ctx) //nolint:wrapcheck // the commands have said what they were doing
}

func runServe(cmd *cobra.Command) error {
	cfg, err := config.Load(cmd.Flags())
	if err == nil {
		err = cfg.Validate()
	}
	if err != nil {
		return err
	}
	return app.Run(cmd.Context(), cfg, newLog(&cfg), buildVersion())
}

func runMigrate(cmd *cobra.Command) error {
	cfg, err := config.Load(cmd.Flags())
	if err == nil {
		err = cfg.ValidateMigrate()
	}
	if err != nil {
		return err
	}
	return app.Migrate(cmd.Context(), cfg, newLog(&cfg))
}

func runDeclareLoss(cmd *cobra.Command) error {
	cfg, err := config.Load(cmd.Flags())
	if err == nil {
		err = cfg.Validate()
	}
	if err != nil {
		return err
	}
	return app.DeclareLoss(cmd.Context(), cfg, newLog(&cfg))
}

func newLog(cfg *config.Config) *slog.Logger {
	return slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: cfg.Log.Level}))
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
