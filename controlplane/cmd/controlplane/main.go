// Command controlplane runs a replica of the control plane: it serves the admin
// API, grants leases to proxies and settles the usage that they report. It also
// migrates the database.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"modelgateway/controlplane/internal/app"
	"modelgateway/controlplane/internal/config"
	"modelgateway/controlplane/internal/diagnosis"
	"modelgateway/shared/platform/buildinfo"
	"modelgateway/shared/platform/heap"
)

// release is set by the linker for a release build.
var release = ""

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		os.Exit(1) //nolint:gocritic // exitAfterDefer: the deferred call only stops the signal handler
	}
}

func run(ctx context.Context, args []string) error {
	root := &cobra.Command{
		Use:           "controlplane",
		Short:         "The control plane of the model gateway",
		Version:       buildinfo.Version(release),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")

	serve := &cobra.Command{
		Use:   "serve",
		Short: "Serve the admin API and the proxies until SIGTERM or SIGINT",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return runServe(cmd) },
	}

	migrate := &cobra.Command{
		Use:   "migrate",
		Short: "Migrate the database schema to this version",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return runMigrate(cmd) },
	}

	declare := &cobra.Command{
		Use:   "declare-loss",
		Short: "Declare that Postgres has lost commits, for example after a restore from a backup",
		Long: `Declare that Postgres has lost commits, for example after a restore from a
backup. Running control planes detect the loss of the most recent commits by
themselves if NATS has kept the recovery bucket. Use this command if the bucket
is lost, too, or if older commits are missing.

It begins a new cluster epoch: all sessions expire, nothing is granted for the
duration of session.window, and usage is settled again from the usage stream and
from the spools of the proxies. Running control planes adopt the new epoch.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runDeclareLoss(cmd) },
	}

	doctor := &cobra.Command{
		Use:   "doctor",
		Short: "Check Postgres, NATS, proxies, secrets and the ledger with the settings of a control plane",
		Long: `Make the checks of "gwctl doctor" with the settings and secrets of a control
plane, without one that runs and without an admin token. It also calls the
providers of the catalog. It exits with 1 on a failure.

With --preflight it leaves out what does not run before an installation or an
upgrade: it checks settings, secrets, Postgres, NATS, clocks and egress.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runDoctor(cmd) },
	}

	show := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprintln(cmd.OutOrStdout(), "controlplane", buildinfo.Version(release))
		},
	}

	config.AddFlags(serve.Flags())
	serve.Flags().Bool(checkFlag, false, "check the settings and the files of secrets, and exit")
	config.AddFlags(migrate.Flags())
	config.AddFlags(declare.Flags())
	config.AddFlags(doctor.Flags())
	doctor.Flags().Bool(preflightFlag, false, "leave out what does not run before an installation or upgrade")
	doctor.Flags().StringSlice(serviceFlag, nil, "addresses that must answer")
	root.AddCommand(serve, migrate, declare, doctor, show)
	root.SetArgs(args)

	return root.ExecuteContext(ctx) //nolint:wrapcheck // the commands wrap their errors
}

// checkFlag is the flag of serve that only checks the settings.
const checkFlag = "check"

func runServe(cmd *cobra.Command) error {
	cfg, err := config.Load(cmd.Flags())
	if err == nil {
		err = cfg.Validate()
	}
	if err != nil {
		return err
	}
	if checkOnly, _ := cmd.Flags().GetBool(checkFlag); checkOnly { // the flag exists
		fmt.Fprintln(cmd.OutOrStdout(), "the settings are valid")
		return nil
	}
	if os.Getenv("GOGC") == "" {
		heap.Tune()
	}
	return app.Run(cmd.Context(), cfg, os.Stderr, buildinfo.Version(release))
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

// Flags of the command doctor.
const preflightFlag, serviceFlag = "preflight", "service"

func runDoctor(cmd *cobra.Command) error {
	cfg, err := config.Load(cmd.Flags())
	if err == nil {
		err = cfg.Validate()
	}
	if err != nil {
		return err
	}

	preflight, _ := cmd.Flags().GetBool(preflightFlag)     // the flag exists
	services, _ := cmd.Flags().GetStringSlice(serviceFlag) // the flag exists
	report, err := app.Check(cmd.Context(), cfg, app.Doctor{Preflight: preflight, Services: services, Build: buildinfo.Version(release)})
	if err != nil {
		return err
	}

	diagnosis.Print(cmd.OutOrStdout(), report.Findings, true)
	if report.Status() == diagnosis.Failure {
		return errors.New("a check failed")
	}

	return nil
}

func newLog(cfg *config.Config) *slog.Logger {
	return slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: cfg.Log.Level}))
}
