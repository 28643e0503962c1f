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

// endStale kills the processes that a killed run left behind and removes its state files.
// It kills a process only if that runs a binary of the stack, because the system may have
// given the number to another process.
//
// Postgres is not included: package pgcluster ends its own remaining processes.
func (l Layout) endStale(ctx context.Context, say func(format string, args ...any)) error {
	pids, err := l.recordedProcesses()
	if err != nil {
		return err
	}
	for name, pid := range pids {
		if pid == os.Getpid() || !l.runsBinary(pid) {
			continue
		}
		say("killing %s (pid %d) of an earlier run", name, pid)
		if err := l.kill(ctx, pid); err != nil {
			return fmt.Errorf("kill %s (pid %d) of an earlier run: %w", name, pid, err)
		}
	}
	return errors.Join(removeFile(l.state()), removeFile(l.processes()))
}

// kill kills a process of the stack and waits for its end. The process gets no time for a
// graceful stop, because NATS, which it would need, has already ended.
func (l Layout) kill(ctx context.Context, pid int) error {
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill: %w", err)
	}
	const interval = 10 * time.Millisecond
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for l.runsBinary(pid) {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
	return nil
}

// runsBinary reports whether the process runs a binary of the stack.
func (l Layout) runsBinary(pid int) bool {
	// Linux appends " (deleted)" to the name of a program that was rebuilt since.
	program := strings.TrimSuffix(programOf(pid), " (deleted)")
	bin, err := filepath.EvalSymlinks(l.binary(""))
	return err == nil && program != "" && filepath.Dir(program) == bin
}

// programOf returns the executable file of a process, "" if there is no such process.
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
