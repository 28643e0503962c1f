package pgcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// CanReplicate returns an error that wraps ErrUnusable unless an installation has the programs of StartStandby and Promote.
// Distributions may have them in a package of their own.
func CanReplicate(b Binaries) error {
	for _, name := range []string{"pg_basebackup", "pg_ctl"} {
		if _, err := exec.LookPath(b.path(name)); err != nil {
			return fmt.Errorf("pgcluster: %s has no %s: %w", b.Dir, name, ErrUnusable)
		}
	}
	return nil
}

// StartStandby starts a server that follows the server with a URL of its superuser, in a temporary directory, and returns when
// it accepts connections. Dir and Database of cfg are ignored; the password is that of the primary. It replicates through the host and port
// of the URL, so that a test can cut it off. Replication is asynchronous unless the primary is told to wait.
func StartStandby(ctx context.Context, primary string, cfg Config) (*Cluster, error) {
	cfg, err := cfg.defaults()
	if err != nil {
		return nil, err
	}
	if err := CanReplicate(cfg.Binaries); err != nil {
		return nil, err
	}

	o, err := serverOwner()
	if err != nil {
		return nil, err
	}

	dir, err := os.MkdirTemp(temporaryRoot(o), "modelgateway-postgres-")
	if err != nil {
		return nil, fmt.Errorf("pgcluster: %w", err)
	}

	c, err := follow(ctx, primary, cfg, dir, o)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}

	return c, nil
}

func follow(ctx context.Context, primary string, cfg Config, dir string, o owner) (*Cluster, error) {
	if err := o.give(dir); err != nil {
		return nil, err
	}
	args := []string{"-D", filepath.Join(dir, "data"), "-d", primary, "--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast"}
	if !cfg.Fsync {
		args = append(args, "--no-sync")
	}
	if err := run(ctx, cfg, o, dir, "", "pg_basebackup", args...); err != nil {
		return nil, err
	}
	return startIn(ctx, cfg, dir, o)
}

// Promote makes a standby a primary on a timeline of its own, and returns when it takes writes.
func (c *Cluster) Promote(ctx context.Context) error {
	o, err := serverOwner()
	if err != nil {
		return err
	}
	return run(ctx, c.cfg, o, c.data, "", "pg_ctl", "promote", "-w", "-D", c.data)
}
