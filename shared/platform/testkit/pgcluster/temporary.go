package pgcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

// janitorScript waits until its input ends. If it reads no line before, the process that
// started the server has ended, and the script stops the server.
const janitorScript = `
read -r stopped || kill -INT "$1" 2>/dev/null
while kill -0 "$1" 2>/dev/null; do sleep 0.1; done
rm -rf -- "$2"
`

// A janitor is a process that removes a temporary directory when the server in it has
// ended, and stops that server if this process ends first. A test process cannot do that
// itself, because it may end by a panic, a timeout or a kill.
type janitor struct {
	// finish returns when the directory is removed. The server must have ended.
	finish func() error
	// abandon has the effect of the end of this process.
	abandon func()
}

// startTemporary starts a cluster in a temporary directory.
func startTemporary(ctx context.Context, cfg Config, o owner) (*Cluster, error) {
	dir, err := os.MkdirTemp(temporaryRoot(o), "modelgateway-postgres-")
	if err != nil {
		return nil, fmt.Errorf("pgcluster: %w", err)
	}
	c, err := startIn(ctx, cfg, dir, o)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return c, nil
}

func startIn(ctx context.Context, cfg Config, dir string, o owner) (*Cluster, error) {
	if err := o.give(dir); err != nil {
		return nil, err
	}
	cfg.Dir = filepath.Join(dir, "data")
	c, err := start(ctx, cfg, o)
	if err != nil {
		return nil, err
	}
	if c.janitor, err = startJanitor(c.PID(), dir, o); err != nil {
		return nil, errors.Join(err, c.Stop(context.WithoutCancel(ctx)))
	}
	return c, nil
}

func startJanitor(pid int, dir string, o owner) (*janitor, error) {
	cmd := exec.Command("/bin/sh", "-c", janitorScript, "janitor", strconv.Itoa(pid), dir)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: o.credential(), Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("pgcluster: janitor: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("pgcluster: janitor: %w", err)
	}

	return &janitor{
		finish: sync.OnceValue(func() error {
			_, _ = io.WriteString(stdin, "stopped\n")
			_ = stdin.Close()
			if err := cmd.Wait(); err != nil {
				return fmt.Errorf("pgcluster: janitor: %w", err)
			}
			return nil
		}),
		abandon: func() { _ = stdin.Close() },
	}, nil
}
