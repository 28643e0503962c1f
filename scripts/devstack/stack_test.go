package devstack

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"modelgateway/scripts/devstack/pginstall"
	"modelgateway/shared/platform/testkit/pgcluster"
)

// An output collects the messages of a stack, so that a test can wait for one.
type output struct {
	t  *testing.T
	mu sync.Mutex
	// text is the output so far. more is closed and replaced at each write.
	text strings.Builder
	more chan struct{}
}

func (l *output) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(p)
	close(l.more)
	l.more = make(chan struct{})
	return len(p), nil
}

// await waits until the output contains a message. It fails the test if ended is closed
// before that.
func (l *output) await(message string, ended <-chan struct{}) {
	l.t.Helper()
	for {
		l.mu.Lock()
		text, more := l.text.String(), l.more
		l.mu.Unlock()
		if strings.Contains(text, message) {
			return
		}
		select {
		case <-more:
		case <-ended:
			l.t.Fatalf("the stack ended without the message %q:\n%s", message, text)
		}
	}
}

// testStack is the running stack of a test.
type testStack struct {
	out    *output
	stop   context.CancelFunc
	ended  chan struct{}
	result error
}

func startStack(t *testing.T, l Layout) *testStack {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	r := &testStack{out: &output{t: t, more: make(chan struct{})}, stop: cancel, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		r.result = Run(ctx, Config{Layout: l, Out: r.out, Postgres: pginstall.Console()})
	}()
	t.Cleanup(func() { r.finish(t) })
	r.out.await("Ctrl-C stops everything", r.ended)
	return r
}

func (r *testStack) finish(t *testing.T) {
	t.Helper()
	r.stop()
	<-r.ended
	if r.result != nil {
		t.Errorf("the stack ended with %v", r.result)
	}
}

// ask sends a chat request through each data plane. It retries 503, which a plane may
// answer shortly after a part was killed.
func ask(t *testing.T, state State) {
	t.Helper()
	for _, base := range state.BaseURLs {
		request := map[string]any{"model": "demo-chat", "messages": []any{map[string]string{"role": "user", "content": "Hi"}}}
		var answer struct {
			Choices []any `json:"choices"`
		}
		plane := caller{url: base, token: state.APIKey}
		err := plane.post(t.Context(), "/v1/chat/completions", request, &answer)
		for err != nil && strings.Contains(err.Error(), "503") {
			t.Log(err)
			<-time.After(catalogInterval)
			err = plane.post(t.Context(), "/v1/chat/completions", request, &answer)
		}
		if err != nil || len(answer.Choices) != 1 {
			t.Errorf("%s: got %+v, %v; want an answer", base, answer, err)
		}
	}
}

// searched counts the port ranges that the tests of this process have tried, so that two
// tests do not use the same range.
var searched atomic.Int64

// freePorts returns free ports below the range of ephemeral ports, because the port of a
// killed part must still be free at its restart. scripts/e2e/rig uses a range above.
func freePorts(t *testing.T) Ports {
	t.Helper()
	const lowest, highest = 15000, 20000
	first := DefaultPorts(DefaultPlanes())
	step := len(first.all())
	for range (highest - lowest) / step {
		place := os.Getpid() + int(searched.Add(1))
		ports := PortsFrom(lowest+place*step%(highest-lowest-step), DefaultPlanes())
		if ports.CheckFree(t.Context()) == nil {
			return ports
		}
	}
	t.Fatal("no free ports")
	return first
}

func TestStackRestartsPartsAndKeepsData(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and starts everything")
	}
	if _, err := pgcluster.Find(); err != nil {
		t.Skip(err)
	}
	ports := freePorts(t)
	for _, port := range ports.all() {
		t.Setenv(port.Variable, strconv.Itoa(port.Number))
	}
	t.Setenv(CatalogVariable, "")
	layout, err := FindLayout(".", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Clean(context.Background(), layout); err != nil {
			t.Error(err)
		}
	})

	first := startStack(t, layout)
	state := readState(t, layout)
	ask(t, state)
	first.openHint(t, state)
	if _, err := layout.lock(); err == nil {
		t.Error("a second stack started in the directory")
	}
	for _, name := range []string{"dp-1", "providersim", "controlplane", "postgres"} {
		if err := syscall.Kill(state.PIDs[name], syscall.SIGKILL); err != nil {
			t.Fatalf("kill %s: %v", name, err)
		}
		first.out.await(name+" is running again", first.ended)
	}
	again := readState(t, layout)
	if again.PIDs["dp-1"] == state.PIDs["dp-1"] || again.PIDs["dp-2"] != state.PIDs["dp-2"] {
		t.Errorf("stack.json has %v after %v; want a new dp-1 and the old dp-2", again.PIDs, state.PIDs)
	}
	ask(t, again)
	first.finish(t)
	missing(t, layout.state())
	for name, pid := range again.PIDs {
		if err := syscall.Kill(pid, 0); name != "devstack" && !errors.Is(err, syscall.ESRCH) {
			t.Errorf("%s (pid %d) still runs", name, pid)
		}
	}

	second := startStack(t, layout)
	found := readState(t, layout)
	if found.APIKey != state.APIKey || found.AccountID != state.AccountID || found.AdminToken != state.AdminToken {
		t.Error("the second run has a different account, key or token")
	}
	ask(t, found)
	second.finish(t)
	if info, err := os.Stat(layout.postgres()); err != nil || !info.IsDir() {
		t.Errorf("the database is missing: %v", err)
	}
}
