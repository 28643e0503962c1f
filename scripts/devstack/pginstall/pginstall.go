// Package pginstall installs Postgres for the dev stack if it is missing, after
// asking the user if there is one.
package pginstall

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"modelgateway/shared/platform/testkit/pgcluster"
)

// An Installer finds or installs Postgres.
type Installer struct {
	// In is the input of the user; nil installs without a question.
	In io.Reader
	// Out gets the question and messages.
	Out io.Writer
	// Find, CanInstall and Install are the functions of package pgcluster.
	Find       func() (pgcluster.Binaries, error)
	CanInstall func(context.Context) bool
	Install    func(context.Context, io.Writer) (pgcluster.Binaries, error)
}

// Console returns the installer of a command-line program. It writes to the standard error
// output, and asks if the input is a terminal and the user is not root.
func Console() Installer {
	c := Installer{
		Out:        os.Stderr,
		Find:       pgcluster.Find,
		CanInstall: pgcluster.CanInstall,
		Install:    pgcluster.Install,
	}
	if info, err := os.Stdin.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Geteuid() != 0 {
		c.In = os.Stdin
	}
	return c
}

// Ensure returns the machine's Postgres and installs it first if it is missing. If it
// cannot or may not install it, the error contains the commands to run.
func (c Installer) Ensure(ctx context.Context) (pgcluster.Binaries, error) {
	binaries, err := c.Find()
	var missing *pgcluster.NotFoundError
	if !errors.As(err, &missing) || !c.CanInstall(ctx) {
		return binaries, err
	}
	fmt.Fprintln(c.Out, "Postgres is not installed.")
	if c.In != nil && !c.confirm() {
		return pgcluster.Binaries{}, err
	}
	fmt.Fprintln(c.Out, "Installing Postgres with apt-get; this takes about a minute.")
	binaries, installErr := c.Install(ctx, c.Out)
	if installErr != nil {
		return pgcluster.Binaries{}, fmt.Errorf("%w\n%w", installErr, missing)
	}
	return binaries, nil
}

// confirm asks whether to install Postgres. An empty answer or the end of the input means
// yes.
func (c Installer) confirm() bool {
	fmt.Fprint(c.Out, "Install it with apt-get (as root, through sudo)? [Y/n] ")
	line, _ := bufio.NewReader(c.In).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "", "y", "yes":
		return true
	default:
		return false
	}
}
