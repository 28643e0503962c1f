package pgcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// installCommands are the commands for a user whose machine Install cannot change.
var installCommands = []string{
	"sudo apt-get update",
	"sudo apt-get install -y --no-install-recommends postgresql",
}

// clusterConfDir is the directory of settings for the cluster that Debian's package
// creates and starts during the installation, unless a setting prevents it.
const clusterConfDir = "/etc/postgresql-common/createcluster.d"

// ErrCannotInstall reports that this process cannot install packages: the machine has no
// apt-get, or the user is not root and sudo asks for a password.
var ErrCannotInstall = errors.New("pgcluster: cannot install Postgres here")

// Install installs the distribution's Postgres server with apt-get, without the default
// cluster, and returns its binaries. It does not ask for confirmation. The output of the
// commands goes to out. If CanInstall is false, it returns ErrCannotInstall.
func Install(ctx context.Context, out io.Writer) (Binaries, error) {
	prefix, ok := rootPrefix(ctx)
	if !ok {
		return Binaries{}, ErrCannotInstall
	}

	conf := filepath.Join(clusterConfDir, "modelgateway.conf")
	// The setting is needed only while the package is configured, and is removed
	// afterwards, because it would affect later installations by hand.
	steps := [][]string{
		{"mkdir", "-p", clusterConfDir},
		{"sh", "-c", "echo 'create_main_cluster = false' > " + conf},
		{"apt-get", "update"},
		{"env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "--no-install-recommends", "postgresql"},
	}
	defer func() { _ = runStep(context.WithoutCancel(ctx), out, prefix, []string{"rm", "-f", conf}) }()

	for _, step := range steps {
		if err := runStep(ctx, out, prefix, step); err != nil {
			return Binaries{}, err
		}
	}

	return Find()
}

// CanInstall reports whether this process can install packages.
func CanInstall(ctx context.Context) bool {
	_, ok := rootPrefix(ctx)
	return ok
}

// rootPrefix returns the words before a command that make it run as root.
func rootPrefix(ctx context.Context) (prefix []string, ok bool) {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return nil, false
	}
	if os.Geteuid() == 0 {
		return nil, true
	}
	if exec.CommandContext(ctx, "sudo", "-n", "true").Run() != nil {
		return nil, false
	}
	return []string{"sudo", "-n"}, true
}

func runStep(ctx context.Context, out io.Writer, prefix, step []string) error {
	args := append(append([]string{}, prefix...), step...)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("pgcluster: %v: %w", args, err)
	}
	return nil
}
