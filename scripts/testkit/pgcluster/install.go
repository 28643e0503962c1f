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

// installCommands is what a person runs where Install may not.
var installCommands = []string{
	"sudo apt-get update",
	"sudo apt-get install -y --no-install-recommends postgresql",
}

// clusterConfDir is where the Debian packaging looks for settings of the
// cluster that it would otherwise create and start with the installation.
const clusterConfDir = "/etc/postgresql-common/createcluster.d"

// ErrCannotInstall reports that this process may not install packages: the
// machine has no apt-get, or we are neither root nor allowed to become it
// without a password.
var ErrCannotInstall = errors.New("pgcluster: cannot install Postgres here")

// Install installs the distribution's Postgres server with apt-get, without a
// cluster of its own, and returns its binaries. It asks nothing. The output of
// the commands goes to out. Where CanInstall is false it does nothing and
// returns ErrCannotInstall.
func Install(ctx context.Context, out io.Writer) (Binaries, error) {
	prefix, ok := rootPrefix(ctx)
	if !ok {
		return Binaries{}, ErrCannotInstall
	}
	conf := filepath.Join(clusterConfDir, "modelgateway.conf")
	// The setting matters only while the package is configured. Left behind, it
	// would change what a later installation by hand does.
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

// CanInstall reports whether Install would try.
func CanInstall(ctx context.Context) bool {
	_, ok := rootPrefix(ctx)
	return ok
}

// rootPrefix returns what to put before a command for it to run as root.
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
