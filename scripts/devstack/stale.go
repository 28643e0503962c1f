package devstack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// endStale ends the processes that a killed run left behind, and forgets its
// files. A process is touched only if it runs a program of ours: its number
// may belong to a stranger by now.
//
// Postgres is not among them; starting it takes care of its own.
func (l Layout) endStale(ctx context.Context, say func(format string, args ...any)) error {
	pids, err := l.recordedProcesses()
	if err != nil {
		return err
	}
	for name, pid := range pids {
		if pid == os.Getpid() || !l.runsOurs(pid) {
			continue
		}
		say("ending %s (pid %d) of an earlier run", name, pid)
		if err := l.kill(ctx, pid); err != nil {
			return fmt.Errorf("end %s (pid %d) of an earlier run: %w", name, pid, err)
		}
	}
	return errors.Join(removeFile(l.state()), removeFile(l.processes()))
}

// kill kills a process of ours and waits until it is gone. It gets no time to
// be graceful: what it would talk to is gone already.
func (l Layout) kill(ctx context.Context, pid int) error {
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill: %w", err)
	}
	const interval = 10 * time.Millisecond
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for l.runsOurs(pid) {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
	return nil
}

// runsOurs reports whether the process runs a program from the stack's bin.
func (l Layout) runsOurs(pid int) bool {
	// A program that was built anew since has " (deleted)" behind its name.
	program := strings.TrimSuffix(programOf(pid), " (deleted)")
	bin, err := filepath.EvalSymlinks(l.binary(""))
	return err == nil && program != "" && filepath.Dir(program) == bin
}

// programOf returns the file that a process runs, "" if there is no such process.
func programOf(pid int) string {
	program, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "exe"))
	if err == nil {
		return program
	}
	if _, err := os.Stat("/proc/self/exe"); err == nil {
		return ""
	}
	out, err := exec.Command("ps", "-o", "comm=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
