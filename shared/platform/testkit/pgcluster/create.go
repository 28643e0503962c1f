package pgcluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
)

// superuser is the role that a cluster is created with.
const superuser = "postgres"

// preparedSuffix is appended to the name of an incomplete data directory.
const preparedSuffix = ".new"

var plainName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

// create creates a cluster in its place, or leaves nothing that a later start would take
// for a cluster.
func create(ctx context.Context, cfg Config, p place, o owner) error {
	if p.moved() {
		if err := removeOrphans(); err != nil {
			return err
		}
	}

	prepared := p.data + preparedSuffix
	for _, name := range []string{prepared, p.data} {
		if err := os.RemoveAll(name); err != nil {
			return fmt.Errorf("pgcluster: %w", err)
		}
	}

	if cfg.Template != "" {
		if err := copyData(ctx, cfg.Template, prepared); err != nil {
			return err
		}
		return p.finish(prepared)
	}

	if err := o.makeDir(prepared); err != nil {
		return err
	}
	if err := initialise(ctx, cfg, prepared, o); err != nil {
		return err
	}

	if cfg.Database != "" && cfg.Database != superuser {
		if err := createDatabase(ctx, cfg, prepared, o); err != nil {
			return err
		}
	}

	return p.finish(prepared)
}

// copyData copies the data directory of a stopped cluster, with its owner and modes.
func copyData(ctx context.Context, from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // G301: the owner must be able to enter it
		return fmt.Errorf("pgcluster: %w", err)
	}
	if out, err := exec.CommandContext(ctx, "cp", "-a", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("pgcluster: copy %s: %w: %s", from, err, out)
	}
	return nil
}

// initialise runs initdb with a fixed locale, so that the sort order does not depend on
// the machine.
func initialise(ctx context.Context, cfg Config, dir string, o owner) error {
	args := []string{"-D", dir, "--username=" + superuser, "--encoding=UTF8", "--locale=C", "--no-instructions"}
	if !cfg.Fsync {
		args = append(args, "--no-sync")
	}

	if cfg.Password == "" {
		args = append(args, "--auth=trust")
	} else {
		file := dir + ".password"
		if err := os.WriteFile(file, []byte(cfg.Password+"\n"), 0o600); err != nil {
			return fmt.Errorf("pgcluster: %w", err)
		}
		defer func() { _ = os.Remove(file) }()
		if err := o.give(file); err != nil {
			return err
		}
		args = append(args, "--auth=scram-sha-256", "--pwfile="+file)
	}

	return run(ctx, cfg, o, dir, "", "initdb", args...)
}

// createDatabase uses the single-user mode of the server, which needs no port and no client.
func createDatabase(ctx context.Context, cfg Config, dir string, o owner) error {
	if !plainName.MatchString(cfg.Database) {
		return fmt.Errorf("pgcluster: database name %q: want lower-case letters, digits and underscores", cfg.Database)
	}
	args := []string{"--single", "-D", dir, "-c", "exit_on_error=on"}
	if !cfg.Fsync {
		args = append(args, "-c", "fsync=off")
	}
	return run(ctx, cfg, o, dir, "create database "+cfg.Database+";\n", "postgres", append(args, superuser)...)
}

// run runs one of the programs of Postgres as the owner and waits for it.
func run(ctx context.Context, cfg Config, o owner, dir, stdin, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, cfg.Binaries.path(name), args...)
	cmd.Dir = dir
	cmd.Env = serverEnv(dir)
	cmd.Stdin = strings.NewReader(stdin)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: o.credential()}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("pgcluster: %s in %s: %w\n%s", name, dir, err, strings.TrimSpace(out.String()))
	}
	return nil
}

// serverEnv returns the environment of the programs of Postgres: that of this process
// without variables that change the behaviour of a server, with English messages, and
// with a home directory that the server's user can read.
func serverEnv(dir string) []string {
	env := []string{"HOME=" + dir, "LC_ALL=C", "TZ=UTC"}
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if name == "HOME" || name == "TZ" || name == "LANG" || name == "LANGUAGE" ||
			strings.HasPrefix(name, "LC_") || strings.HasPrefix(name, "PG") {
			continue
		}
		env = append(env, entry)
	}
	return env
}
