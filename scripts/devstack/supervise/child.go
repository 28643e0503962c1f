package supervise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
)

// A Command is a program to run as a child process.
type Command struct {
	// Path is the program, Args its arguments without its name.
	Path string
	Args []string
	// Env is the whole environment.
	Env []string
	// Dir is the working directory; empty: that of this process.
	Dir string
	// LogFile is the file that the output of the process is appended to.
	LogFile string
}

// A Child is a running or ended child process. It implements Process.
type Child struct {
	cmd *exec.Cmd
	// logFrom is the offset of its output in the log file.
	logFile string
	logFrom int64
	// done is closed when it has ended; err is valid then.
	done chan struct{}
	err  error
}

// StartChild starts a process in a process group of its own, so that Ctrl-C in the terminal
// does not reach it and this process can stop the parts in order. On Linux the kernel
// kills it if this process dies without stopping it.
func StartChild(c Command) (*Child, error) {
	log, err := os.OpenFile(c.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	defer func() { _ = log.Close() }() // the child has its own descriptor
	offset, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}

	cmd := exec.Command(c.Path, c.Args...)
	cmd.Env, cmd.Dir = c.Env, c.Dir
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)

	child := &Child{
		cmd:     cmd,
		logFile: c.LogFile,
		logFrom: offset,
		done:    make(chan struct{}),
	}
	if err := child.start(); err != nil {
		return nil, fmt.Errorf("run %s: %w", c.Path, err)
	}

	return child, nil
}

// start starts the process on a thread that is locked until the process ends, because
// Linux signals a child when the thread that started it ends.
func (c *Child) start() error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := c.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		c.err = c.cmd.Wait()
		close(c.done)
	}()
	return <-started
}

// PID returns the process id.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Done is closed when the process has ended.
func (c *Child) Done() <-chan struct{} { return c.done }

// Err waits for the end of the process and returns nil for exit code 0, otherwise the exit
// code or signal as an error.
func (c *Child) Err() error {
	<-c.done
	return c.err
}

// Stop terminates the process, and kills it when ctx has ended. It returns an error for an
// exit code other than 0 and for a killed process.
func (c *Child) Stop(ctx context.Context) error {
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
	}
	_ = c.cmd.Process.Kill()
	<-c.done
	if c.err == nil {
		return nil
	}
	return errors.Join(context.Cause(ctx), c.err)
}

// Log returns the last lines of the output of this process.
func (c *Child) Log(lines int) string {
	file, err := os.Open(c.logFile)
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	const most = 64 << 10
	end, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return ""
	}
	if c.logFrom > end { // the log was put aside
		c.logFrom = 0
	}

	from := max(c.logFrom, end-most)
	text, _ := io.ReadAll(io.NewSectionReader(file, from, end-from))
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
