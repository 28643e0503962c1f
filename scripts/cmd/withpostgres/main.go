// Command withpostgres starts a temporary Postgres server, runs a command with the URL of
// the server in MGW_TEST_POSTGRES_URL, and stops the server:
//
//	withpostgres go test ./...
//
// It installs Postgres if necessary. If the variable is already set, it starts no server.
// Its exit code is that of the command.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"modelgateway/scripts/devstack/pginstall"
	"modelgateway/shared/platform/testkit/pgcluster"
)

// variable is the environment variable that package pgtest of the control plane reads.
const variable = "MGW_TEST_POSTGRES_URL"

func main() { os.Exit(run(os.Args[1:])) }

// run returns the exit code.
func run(args []string) int {
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "usage: withpostgres COMMAND [ARGUMENT...]")
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := runWithServer(ctx, args)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() > 0 {
		return exit.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "withpostgres:", err)
		return 1
	}
	return 0
}

// runWithServer runs the command with a server, unless one is given.
func runWithServer(ctx context.Context, args []string) (err error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if os.Getenv(variable) != "" {
		return runCommand(cmd)
	}

	binaries, err := pginstall.Console().Ensure(ctx)
	if err != nil {
		return err
	}

	cluster, err := pgcluster.Start(ctx, pgcluster.Config{
		Binaries: binaries,
		Settings: map[string]string{"max_connections": "300"},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Stop(context.WithoutCancel(ctx))) }()
	cmd.Env = append(os.Environ(), variable+"="+cluster.URL(""))

	return runCommand(cmd)
}

func runCommand(cmd *exec.Cmd) error {
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", cmd.Path, err)
	}
	return nil
}
