package supervise

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

// roleVariable makes the test binary act as a child process instead of running tests. The
// child calls the URL in upVariable after its start.
const (
	roleVariable = "SUPERVISE_TEST_ROLE"
	upVariable   = "SUPERVISE_TEST_UP"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(play(role))
	}
	os.Exit(m.Run())
}

func play(role string) int {
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	fmt.Println("role " + role)
	if response, err := http.Get(os.Getenv(upVariable)); err == nil {
		_ = response.Body.Close()
	}
	switch role {
	case "polite":
		<-terminated
		return 0
	case "rude":
		<-terminated
		return 3
	case "deaf":
		select {}
	}
	fmt.Println("the last line")
	return 7
}

// startRole starts a child and returns after the child has called the URL in upVariable.
func startRole(t *testing.T, role string) *Child {
	t.Helper()
	up := make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { up <- struct{}{} }))
	t.Cleanup(server.Close)
	logFile := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(logFile, []byte("an earlier run\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	child, err := StartChild(Command{
		Path:    os.Args[0],
		Env:     append(os.Environ(), roleVariable+"="+role, upVariable+"="+server.URL),
		LogFile: logFile,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = child.cmd.Process.Kill()
		<-child.Done()
	})
	<-up
	return child
}

// exitCode returns the exit code of a process, -1 for a signal.
func exitCode(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("got %v; want an exit code", err)
	}
	if err == nil {
		return 0
	}
	return exit.ExitCode()
}

func TestStopIsGraceful(t *testing.T) {
	t.Parallel()
	for role, want := range map[string]int{"polite": 0, "rude": 3} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			child := startRole(t, role)
			if got := exitCode(t, child.Stop(t.Context())); got != want {
				t.Errorf("got exit code %d; want %d", got, want)
			}
			if got := exitCode(t, child.Stop(t.Context())); got != want {
				t.Errorf("stopped again: got exit code %d; want %d", got, want)
			}
		})
	}
}

func TestStopKillsWhenTheContextEnds(t *testing.T) {
	t.Parallel()
	child := startRole(t, "deaf")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := child.Stop(ctx)
	if exitCode(t, err) != -1 || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v; want killed because the context ended", err)
	}
}

func TestChildHasAProcessGroupOfItsOwn(t *testing.T) {
	t.Parallel()
	child := startRole(t, "polite")
	group, err := syscall.Getpgid(child.PID())
	if err != nil || group != child.PID() {
		t.Errorf("got group %d, %v; want %d", group, err, child.PID())
	}
}

func TestLogContainsOnlyTheOutputOfThisRun(t *testing.T) {
	t.Parallel()
	child := startRole(t, "broken")
	if got := exitCode(t, child.Err()); got != 7 {
		t.Errorf("got exit code %d; want 7", got)
	}
	for lines, want := range map[int]string{1: "the last line", 2: "role broken\nthe last line", 9: "role broken\nthe last line"} {
		if got := child.Log(lines); got != want {
			t.Errorf("last %d lines: got %q; want %q", lines, got, want)
		}
	}
}

func TestAwaitReadyProbesUntil200(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1) < 3 {
			http.Error(w, "no catalog yet", http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(server.Close)
	if err := AwaitReady(t.Context(), startRole(t, "polite"), server.URL); err != nil {
		t.Error(err)
	}
	if calls.Load() != 3 {
		t.Errorf("probed %d times; want 3", calls.Load())
	}
}

func TestAwaitReadyReportsExitCodeAndLog(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no catalog yet", http.StatusServiceUnavailable)
		select {
		case asked <- struct{}{}:
		default:
		}
	}))
	t.Cleanup(server.Close)

	t.Run("the child ended", func(t *testing.T) {
		t.Parallel()
		err := AwaitReady(t.Context(), startRole(t, "broken"), server.URL)
		if err == nil || !strings.Contains(err.Error(), "exit status 7") || !strings.Contains(err.Error(), "the last line") {
			t.Errorf("got %v; want the exit code and the log", err)
		}
	})
	t.Run("time is up", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		child := startRole(t, "polite")
		result := make(chan error)
		go func() { result <- AwaitReady(ctx, child, server.URL) }()
		<-asked
		cancel()
		if err := <-result; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v; want the end of the context", err)
		}
	})
}
