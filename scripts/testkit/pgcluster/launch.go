package pgcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// pollInterval is how often files and processes are looked at that give no
// signal of their own.
const pollInterval = 10 * time.Millisecond

// ErrPortInUse is wrapped by the error of a Start on a port that another process
// listens on.
var ErrPortInUse = errors.New("the port is in use")

// launch starts the server of an existing cluster and waits until it is ready.
func launch(ctx context.Context, cfg Config, data string, o owner) (*Cluster, error) {
	c := &Cluster{cfg: cfg, data: data, port: cfg.Port, done: make(chan struct{})}
	if c.port == 0 {
		var err error
		if c.port, err = freePort(ctx); err != nil {
			return nil, err
		}
	}
	log, err := os.OpenFile(cfg.LogFile, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("pgcluster: %w", err)
	}
	defer func() { _ = log.Close() }()
	offset, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, fmt.Errorf("pgcluster: %w", err)
	}

	c.cmd = exec.Command(cfg.Binaries.path("postgres"), append([]string{"-D", data}, cfg.settings(c.port)...)...)
	c.cmd.Dir = data
	c.cmd.Env = serverEnv(data)
	c.cmd.Stdout, c.cmd.Stderr = log, log
	c.cmd.SysProcAttr = serverAttr(o)
	if err := c.run(); err != nil {
		return nil, fmt.Errorf("pgcluster: start postgres: %w", err)
	}
	if err := c.waitReady(ctx); err != nil {
		_ = c.Stop(context.WithoutCancel(ctx))
		return nil, explain(err, c.port, log, offset)
	}
	return c, nil
}

// run starts the process and a goroutine that waits for it. Both happen on one
// thread kept for it, because Linux sends the parent-death signal when the
// thread that made the child ends, not when the process does.
func (c *Cluster) run() error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := c.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		c.exitErr = c.cmd.Wait()
		close(c.done)
	}()
	return <-started
}

// waitReady waits for the line that the server writes into its pid file when
// it accepts connections.
func (c *Cluster) waitReady(ctx context.Context) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		text, err := os.ReadFile(pidFile(c.data))
		if err == nil && isReady(string(text), c.PID()) {
			return nil
		}
		select {
		case <-c.done:
			return fmt.Errorf("postgres ended while starting: %w", c.exitErr)
		case <-ctx.Done():
			return fmt.Errorf("postgres is not ready: %w", context.Cause(ctx))
		case <-tick.C:
		}
	}
}

func pidFile(data string) string { return filepath.Join(data, "postmaster.pid") }

// isReady reports whether the text of a pid file is that of the process, with
// "ready" in its eighth line.
func isReady(text string, pid int) bool {
	const statusLine = 7
	lines := strings.Split(text, "\n")
	return len(lines) > statusLine && lines[0] == strconv.Itoa(pid) && strings.TrimSpace(lines[statusLine]) == "ready"
}

// explain adds what the server wrote to its log since offset.
func explain(err error, port int, log io.ReaderAt, offset int64) error {
	const longest = 4 << 10
	text, _ := io.ReadAll(io.NewSectionReader(log, offset, longest))
	if bytes.Contains(text, []byte("could not create any TCP/IP sockets")) {
		err = fmt.Errorf("%w: 127.0.0.1:%d: %w", err, port, ErrPortInUse)
	}
	return fmt.Errorf("pgcluster: %w\n%s", err, bytes.TrimSpace(text))
}

// Stop ends the server: open transactions are rolled back, and the data is
// left clean. When ctx ends first the server is ended at once, to recover at
// its next start. Stopping a server that has ended is no error.
func (c *Cluster) Stop(ctx context.Context) error {
	c.signal(syscall.SIGINT)
	select {
	case <-c.done:
	case <-ctx.Done():
		c.signal(syscall.SIGQUIT)
		<-c.done
	}
	if c.janitor != nil {
		return c.janitor.finish()
	}
	return nil
}

// signal sends to a server that has not been waited for; for one that has, the
// os package does nothing.
func (c *Cluster) signal(sig os.Signal) { _ = c.cmd.Process.Signal(sig) }

// serverAttr puts the server into a process group of its own, so that a Ctrl-C
// meant for this process does not stop the server before its clients.
func serverAttr(o owner) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Credential: o.credential(), Setpgid: true}
	stopWithParent(attr)
	return attr
}
