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

// pollInterval is the interval between checks of files and processes.
const pollInterval = 10 * time.Millisecond

// ErrPortInUse is wrapped by the error of Start if another process listens on the port.
var ErrPortInUse = errors.New("the port is in use")

// launch starts the server of an existing cluster and waits until it is ready.
func launch(ctx context.Context, cfg Config, data string, o owner) (*Cluster, error) {
	c := &Cluster{
		cfg:  cfg,
		data: data,
		port: cfg.Port,
		done: make(chan struct{}),
	}
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

// run starts the process and waits for it in a goroutine with a thread of its own, because
// Linux sends the parent-death signal when the thread that started the child ends.
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

// waitReady waits until the pid file of the server says that it accepts connections.
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

// isReady reports whether the text of a pid file belongs to the process and has "ready" in
// its eighth line.
func isReady(text string, pid int) bool {
	const statusLine = 7
	lines := strings.Split(text, "\n")
	return len(lines) > statusLine && lines[0] == strconv.Itoa(pid) && strings.TrimSpace(lines[statusLine]) == "ready"
}

// explain adds to an error the part of the server's log after offset.
func explain(err error, port int, log io.ReaderAt, offset int64) error {
	const longest = 4 << 10
	text, _ := io.ReadAll(io.NewSectionReader(log, offset, longest))
	if bytes.Contains(text, []byte("could not create any TCP/IP sockets")) {
		err = fmt.Errorf("%w: 127.0.0.1:%d: %w", err, port, ErrPortInUse)
	}
	return fmt.Errorf("pgcluster: %w\n%s", err, bytes.TrimSpace(text))
}

// Stop shuts the server down. It rolls back open transactions. If ctx ends first, the
// server quits immediately and recovers at its next start. Stopping a server that has
// ended is not an error.
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

// signal sends a signal to the server. It does nothing if the server has ended.
func (c *Cluster) signal(sig os.Signal) { _ = c.cmd.Process.Signal(sig) }

// serverAttr puts the server into a process group of its own, so that Ctrl-C in a terminal
// does not stop the server before its clients.
func serverAttr(o owner) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Credential: o.credential(), Setpgid: true}
	stopWithParent(attr)
	return attr
}
