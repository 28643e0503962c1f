package pgcluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// leftoverTimeout is the time that the processes of an abandoned server have to end before
// they are killed.
const leftoverTimeout = 10 * time.Second

// endLeftovers ends the remaining processes of an earlier server in the data directory, and
// removes its pid file.
//
// A server whose parent was killed shuts down by itself, and so do the children of a
// killed server after a while, but a new server does not start before that.
func endLeftovers(ctx context.Context, data string) error {
	processes, err := serverProcesses(data)
	if err != nil {
		return err
	}
	if len(processes) > 0 {
		if err := end(ctx, data, processes); err != nil {
			return err
		}
	}
	if err := os.Remove(pidFile(data)); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("pgcluster: %w", err)
	}
	return nil
}

func end(ctx context.Context, data string, processes []int) error {
	if postmaster := recordedPID(data); postmaster != 0 && slices.Contains(processes, postmaster) {
		send(syscall.SIGINT, postmaster)
	} else {
		send(syscall.SIGTERM, processes...)
	}

	timeout := time.NewTimer(leftoverTimeout)
	defer timeout.Stop()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()

	for {
		processes, err := serverProcesses(data)
		if err != nil || len(processes) == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("pgcluster: an earlier server in %s does not end: %w", data, context.Cause(ctx))
		case <-timeout.C:
			send(syscall.SIGKILL, processes...)
		case <-tick.C:
		}
	}
}

// send signals processes and ignores those that have ended.
func send(sig syscall.Signal, processes ...int) {
	for _, pid := range processes {
		_ = syscall.Kill(pid, sig)
	}
}

// recordedPID returns the process id in the pid file, 0 if there is none.
func recordedPID(data string) int {
	text, err := os.ReadFile(pidFile(data))
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || pid <= 0 {
		return 0
	}
	return pid
}
