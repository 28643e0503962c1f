package devstack

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func readState(t *testing.T, l Layout) State {
	t.Helper()
	text, err := os.ReadFile(l.state())
	if err != nil {
		t.Fatal(err)
	}
	var state State
	if err := json.Unmarshal(text, &state); err != nil {
		t.Fatal(err)
	}
	return state
}

func missing(t *testing.T, name string) {
	t.Helper()
	if _, err := os.Stat(name); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: %v; want no such file", name, err)
	}
}

func TestStateFilesFollowTheProcesses(t *testing.T) {
	t.Parallel()
	l := newLayout(t)
	f := newStateFiles(l)
	if err := f.setProcess("dp-1", 100); err != nil {
		t.Fatal(err)
	}
	missing(t, l.state()) // not ready yet
	if err := f.publish(State{BaseURL: "http://127.0.0.1:1", AccountID: "acc_1"}); err != nil {
		t.Fatal(err)
	}
	if err := f.setProcess("dp-1", 200); err != nil { // it was restarted
		t.Fatal(err)
	}
	pids := map[string]int{"devstack": os.Getpid(), "dp-1": 200}
	want := State{BaseURL: "http://127.0.0.1:1", AccountID: "acc_1", PIDs: pids}
	if diff := cmp.Diff(want, readState(t, l)); diff != "" {
		t.Errorf("stack.json (-want +got):\n%s", diff)
	}
	if info, err := os.Stat(l.state()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("stack.json has mode %v, %v; want 0600, because it contains keys", info.Mode(), err)
	}
	if err := f.withdraw(); err != nil {
		t.Fatal(err)
	}
	if err := f.setProcess("dp-1", 300); err != nil {
		t.Fatal(err)
	}
	missing(t, l.state()) // the stack is stopping
	if got, err := l.recordedProcesses(); err != nil || got["dp-1"] != 300 {
		t.Errorf("got %v, %v; want dp-1 as 300", got, err)
	}
	if err := f.remove(); err != nil {
		t.Fatal(err)
	}
	missing(t, l.processes())
}

// copyProgram creates a binary of the layout that runs until its input ends.
func copyProgram(t *testing.T, l Layout, name string) string {
	t.Helper()
	cat, err := exec.LookPath("cat")
	if err != nil {
		t.Skip(err)
	}
	source, err := os.Open(cat)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = source.Close() }()
	target, err := os.OpenFile(l.binary(name), os.O_CREATE|os.O_WRONLY, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(target, source)
	if err := errors.Join(err, target.Close()); err != nil {
		t.Fatal(err)
	}
	return target.Name()
}

// startWaiting starts a program that runs until its input ends.
func startWaiting(t *testing.T, program string) (pid int, ended chan error) {
	t.Helper()
	cmd := exec.Command(program)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended = make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = stdin.Close() })
	return cmd.Process.Pid, ended
}

func TestEndStaleKillsOnlyProcessesOfTheStack(t *testing.T) {
	t.Parallel()
	l := newLayout(t)
	own, ownEnd := startWaiting(t, copyProgram(t, l, "dataplane"))
	foreign, foreignEnd := startWaiting(t, copyProgram(t, newLayout(t), "dataplane"))
	f := newStateFiles(l)
	for name, pid := range map[string]int{"dp-1": own, "dp-2": foreign} {
		if err := f.setProcess(name, pid); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.publish(State{}); err != nil {
		t.Fatal(err)
	}
	var messages strings.Builder
	say := func(format string, _ ...any) { messages.WriteString(format) }
	if err := l.endStale(t.Context(), say); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := <-ownEnd; !errors.As(err, &exit) {
		t.Errorf("the process of the stack ended with %v; want it killed", err)
	}
	select {
	case err := <-foreignEnd:
		t.Errorf("the foreign process ended: %v", err)
	default:
	}
	if strings.Count(messages.String(), "killing") != 1 {
		t.Errorf("got messages %q; want one about one process", messages.String())
	}
	missing(t, l.state())
	missing(t, l.processes())
}

func TestEndStaleWithoutAnEarlierRun(t *testing.T) {
	t.Parallel()
	l := newLayout(t)
	if err := l.endStale(t.Context(), t.Logf); err != nil {
		t.Errorf("got %v; want nil without an earlier run", err)
	}
	if err := os.WriteFile(l.processes(), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := l.endStale(t.Context(), t.Logf); err == nil || !strings.Contains(err.Error(), l.processes()) {
		t.Errorf("got %v; want the name of the invalid file", err)
	}
}
