package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/devstack"
)

// The parts of the stack that a test can kill, stop or pause.
const (
	ControlPlane  = "controlplane"
	ControlPlane2 = "controlplane-2"
	DataPlane1    = "dp-1"
	DataPlane2    = "dp-2"
	Postgres      = "postgres"

	// dataPlanes is the prefix of the names of all data planes.
	dataPlanes = "dp-"
)

// DataPlane returns the name of the part behind Proxies[i].
func DataPlane(i int) string { return devstack.DataPlaneName(i) }

// ControlPlanes returns the names of all control planes.
func (r *Rig) ControlPlanes() []string {
	var names []string
	for i := range r.stack.State().AdminURLs {
		names = append(names, devstack.ControlPlaneName(i))
	}
	return names
}

// Kill kills a part with SIGKILL. The stack restarts it.
func (r *Rig) Kill(t *testing.T, part string) (restarted func()) {
	t.Helper()
	return r.signal(t, part, syscall.SIGKILL)
}

// Terminate asks a part to shut down. The stack restarts it.
func (r *Rig) Terminate(t *testing.T, part string) (restarted func()) {
	t.Helper()
	return r.signal(t, part, syscall.SIGTERM)
}

// Interrupt asks Postgres to shut down without waiting for its clients. The stack restarts it.
func (r *Rig) Interrupt(t *testing.T, part string) (restarted func()) {
	t.Helper()
	return r.signal(t, part, syscall.SIGINT)
}

// Halt kills a part and keeps it stopped until Resume.
func (r *Rig) Halt(t *testing.T, part string) {
	t.Helper()
	ctx, now := context.WithCancel(t.Context())
	now()
	if err := r.stack.Halt(ctx, part); err != nil {
		t.Fatalf("halt %s: %v", part, err)
	}
}

// End shuts a part down and keeps it stopped until Resume.
func (r *Rig) End(t *testing.T, part string) {
	t.Helper()
	if err := r.stack.Halt(context.WithoutCancel(t.Context()), part); err != nil {
		t.Fatalf("end %s: %v", part, err)
	}
}

// Resume starts stopped parts concurrently and returns when all of them are ready. A part that
// needs another one retries until it is there.
func (r *Rig) Resume(t *testing.T, parts ...string) {
	t.Helper()
	faults := make([]error, len(parts))
	var starting sync.WaitGroup
	for i, part := range parts {
		starting.Go(func() {
			ctx := context.WithoutCancel(t.Context()) // at the end of the test too
			faults[i] = await(ctx, func(ctx context.Context) error { return r.stack.Resume(ctx, part) })
		})
	}
	starting.Wait()
	for i, part := range parts {
		if faults[i] != nil {
			t.Fatalf("resume %s: %v", part, faults[i])
		}
	}
}

// RestartNATS restarts NATS on its data. In between it calls between, if that is not nil,
// which may change the data.
func (r *Rig) RestartNATS(t *testing.T, between func(dir string) error) {
	t.Helper()
	if err := r.stack.RestartNATS(between); err != nil {
		t.Fatalf("restart NATS: %v", err)
	}
}

// RestartPostgres restarts Postgres on its data. In between it calls between, which may change
// the data.
func (r *Rig) RestartPostgres(t *testing.T, between func(dir string) error) {
	t.Helper()
	r.End(t, Postgres)
	if err := between(filepath.Join(r.dir, Postgres)); err != nil {
		t.Fatalf("between two runs of Postgres: %v", err)
	}
	r.Resume(t, Postgres)
}

// Pause stops a part with SIGSTOP, as if its machine hung. Resume or the end of the test
// continues it.
func (r *Rig) Pause(t *testing.T, part string) (resume func()) {
	t.Helper()
	pid := r.pid(t, part)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatalf("pause %s: %v", part, err)
	}
	var once sync.Once
	resume = func() { once.Do(func() { _ = syscall.Kill(pid, syscall.SIGCONT) }) }
	t.Cleanup(resume)
	Await(t, part+" to stop", func(context.Context) error { return stopped(pid) })
	return resume
}

// stopped returns an error if a thread of a process still runs, as it may for some time after the signal.
func stopped(pid int) error {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, path := range threads {
		stat, readErr := os.ReadFile(path)
		if errors.Is(readErr, fs.ErrNotExist) {
			continue // it has ended
		}
		// The state follows the name of the program, which is in parentheses.
		if i := bytes.LastIndexByte(stat, ')'); readErr == nil && !bytes.HasPrefix(stat[i+1:], []byte(" T")) {
			readErr = fmt.Errorf("a thread of %d runs: %s", pid, stat)
		}
		err = errors.Join(err, readErr)
	}

	if err == nil && len(threads) == 0 {
		err = fmt.Errorf("process %d has no threads", pid)
	}

	return err
}

// AwaitSessions waits until the control plane knows exactly one live session per proxy, so
// that the sessions of killed processes have been closed.
func (r *Rig) AwaitSessions(t *testing.T) {
	t.Helper()
	Await(t, "one session per proxy", func(ctx context.Context) error {
		fleet, err := r.Fleet(ctx)
		if err != nil {
			return err
		}

		var sessions []string
		for _, d := range fleet {
			sessions = append(sessions, fmt.Sprintf("%s %s", d.Name, d.State))
		}

		slices.Sort(sessions)
		var want []string
		for i := range r.Proxies {
			want = append(want, DataPlane(i)+" active")
		}

		if slices.Sort(want); !slices.Equal(sessions, want) {
			return fmt.Errorf("got %q; want %q", sessions, want)
		}

		return nil
	})
}

// pid returns the process id of a part. It fails for a part without a process, because a
// signal to pid 0 would reach the tests themselves.
func (r *Rig) pid(t *testing.T, part string) int {
	t.Helper()
	pid := r.stack.State().PIDs[part]
	if pid <= 1 {
		t.Fatalf("there is no process of %q", part)
	}
	return pid
}

// signal sends a signal to a part. The returned function waits until the part runs again and
// is ready.
func (r *Rig) signal(t *testing.T, part string, signal syscall.Signal) (restarted func()) {
	t.Helper()
	before := r.pid(t, part)
	if err := syscall.Kill(before, signal); err != nil {
		t.Fatalf("signal %s: %v", part, err)
	}
	return func() {
		t.Helper()
		Await(t, part+" to run again", func(context.Context) error {
			if pid := r.stack.State().PIDs[part]; pid == before {
				return fmt.Errorf("it has not been started anew since pid %d", pid)
			}
			return nil
		})
	}
}

// Admins returns a client of the admin API for each control plane, with every scope.
func (r *Rig) Admins(t *testing.T) []*adminclient.Client {
	t.Helper()
	state := r.stack.State()
	var admins []*adminclient.Client
	for _, url := range state.AdminURLs {
		admin, err := adminclient.New(url, state.AdminToken)
		if err != nil {
			t.Fatal(err)
		}
		admins = append(admins, admin)
	}
	return admins
}
