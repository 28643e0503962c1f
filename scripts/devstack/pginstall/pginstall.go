// Package pginstall owns the conversation about a missing Postgres: whether to
// install one, asking a person only where there is one to ask.
package pginstall

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"modelgateway/scripts/testkit/pgcluster"
)

// A Conversation is what Ensure needs of the world around it.
type Conversation struct {
	// In answers the question; nil when nobody can be asked.
	In io.Reader
	// Out is told what happens, and shows the question.
	Out io.Writer
	// Find, CanInstall and Install are those of package pgcluster.
	Find       func() (pgcluster.Binaries, error)
	CanInstall func(context.Context) bool
	Install    func(context.Context, io.Writer) (pgcluster.Binaries, error)
}

// Console returns the conversation of a command-line program: it speaks on the
// standard error output, and asks when the input is a terminal and we are not
// root, who is not asked.
func Console() Conversation {
	c := Conversation{Out: os.Stderr, Find: pgcluster.Find, CanInstall: pgcluster.CanInstall, Install: pgcluster.Install}
	if info, err := os.Stdin.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Geteuid() != 0 {
		c.In = os.Stdin
	}
	return c
}

// Ensure returns the machine's Postgres, after installing it if need be. Where
// it may not, the error says what to run.
func (c Conversation) Ensure(ctx context.Context) (pgcluster.Binaries, error) {
	binaries, err := c.Find()
	var missing *pgcluster.NotFoundError
	if !errors.As(err, &missing) || !c.CanInstall(ctx) {
		return binaries, err
	}
	fmt.Fprintln(c.Out, "Postgres is not installed.")
	if c.In != nil && !c.agreed() {
		return pgcluster.Binaries{}, err
	}
	fmt.Fprintln(c.Out, "Installing Postgres with apt-get; this takes about a minute.")
	binaries, installErr := c.Install(ctx, c.Out)
	if installErr != nil {
		return pgcluster.Binaries{}, fmt.Errorf("%w\n%w", installErr, missing)
	}
	return binaries, nil
}

// agreed asks; an empty answer or the end of the input means yes.
func (c Conversation) agreed() bool {
	fmt.Fprint(c.Out, "Install it with apt-get (as root, through sudo)? [Y/n] ")
	line, _ := bufio.NewReader(c.In).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "", "y", "yes":
		return true
	default:
		return false
	}
}
