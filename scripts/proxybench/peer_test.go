package proxybench

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestPeersAreParsed(t *testing.T) {
	t.Parallel()
	got, err := ParsePeer("one api=http://127.0.0.1:3000/v2/,sk-a=b,12")
	want := Target{Name: "one api", BaseURL: "http://127.0.0.1:3000/v2", Key: "sk-a=b", PID: 12, Children: true, Peer: true}
	if err != nil || got.Name != want.Name || got.BaseURL != want.BaseURL || got.Key != want.Key || got.PID != want.PID ||
		!got.Children || !got.Peer {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	for text, want := range map[string]string{
		"":                                    "not of the form",
		"=http://127.0.0.1,key,12":            "not of the form",
		"a=http://127.0.0.1,key":              "not of the form",
		"a=http://127.0.0.1,key,12,13":        "not of the form",
		"a=http://127.0.0.1:x,key,12":         "URL of a",
		"a=http://example.com,key,12":         "loopback",
		"a=https://127.0.0.1,key,12":          "loopback",
		"a=http://127.0.0.1,key,self":         "not a positive number",
		"a=http://127.0.0.1,key,0":            "not a positive number",
		"a=http://[::1]:80/proxy,key,-1":      "not a positive number",
		"a=http://192.168.0.1:3000/,key,1000": "loopback",
	} {
		if _, err := ParsePeer(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got the error %v; want %q", text, err, want)
		}
	}
}

func TestFailedPeersHaveNoResults(t *testing.T) {
	t.Parallel()
	plain := start(t)
	good, broken := plain, plain
	good.Name, good.Peer = "good", true
	broken.Name, broken.Key, broken.Peer = "broken", "another", true
	incomplete := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(answerEvent) }))
	t.Cleanup(incomplete.Close)
	cut := broken
	cut.Name, cut.BaseURL = "cut", incomplete.URL
	s := JSON()
	s.Stream, s.Conns, s.PerRequest = true, 4, eventsPerStream
	measured := map[string]int{}
	once := func(target Target) (Result, error) {
		measured[target.Name]++
		return Measure(t.Context(), s, target, 10*time.Millisecond)
	}

	var log strings.Builder
	results, err := Compare(s, []Target{plain, broken, good, cut}, 2, &log, once)
	if err != nil || len(results[0]) != 2 || results[1] != nil || len(results[2]) != 2 || results[3] != nil {
		t.Fatalf("got %+v, %v", results, err)
	}
	if measured["broken"] != 1 || measured["good"] != 2 {
		t.Errorf("measured %v; want a peer that failed once", measured)
	}
	if got := log.String(); !strings.Contains(got, "failed: JSON, 1 KB prompt, broken: 0 answers are complete") ||
		!strings.Contains(got, "status 401") || !strings.Contains(got, "cut: ") {
		t.Errorf("logged %q", got)
	}

	table := NewTable("plain", "broken", "good")
	table.Add(s, [][]Result{{{CPU: time.Microsecond}}, nil, {{CPU: 3 * time.Microsecond}}})
	var out strings.Builder
	table.Write(&out)
	const want = "| CPU time or memory | plain | broken | × | good | × |\n| --- | --- | --- | --- | --- | --- |\n" +
		"| JSON, 1 KB prompt, per request | 1.0 µs | failed | | 3.0 µs | 3.00 |\n"
	if out.String() != want {
		t.Errorf("got\n%s; want\n%s", &out, want)
	}

	broken.Peer = false
	if _, err := Compare(s, []Target{plain, broken}, 2, &log, once); err == nil || !strings.Contains(err.Error(), "status 401") {
		t.Errorf("another target fails: got %v", err)
	}
}

func TestPeerWithoutItsProcessFails(t *testing.T) {
	t.Parallel()
	gone := Target{Name: "gone", PID: -1, Children: true, Peer: true}
	var log strings.Builder
	results, err := Compare(IdleMemory("idle"), []Target{gone}, 1, &log, func(target Target) (Result, error) {
		return MeasureIdle(t.Context(), target, 0)
	})
	if err != nil || results[0] != nil || !strings.Contains(log.String(), "failed: idle, gone: ") {
		t.Errorf("got %v, %v, %q", results, err, &log)
	}
	if err := (&Result{}).check(); err == nil {
		t.Error("no error without an answer")
	}
}

func TestMemoryOfAPeerIncludesItsChildren(t *testing.T) {
	t.Parallel()
	parent := exec.CommandContext(t.Context(), "sh", "-c", "(echo; read line); true")
	input, err := parent.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := parent.StdoutPipe()
	if err == nil {
		err = parent.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := output.Read(make([]byte, 1)); err != nil { // its child runs
		t.Fatal(err)
	}

	target := Target{PID: parent.Process.Pid}
	alone, err := MeasureIdle(t.Context(), target, 0)
	if err != nil || alone.Peak <= 0 {
		t.Fatal(alone, err)
	}
	target.Children = true
	if all, err := MeasureIdle(t.Context(), target, 0); err != nil || all.Peak <= alone.Peak {
		t.Errorf("got %d bytes, %v; want more than the %d of the parent alone", all.Peak, err, alone.Peak)
	}

	if err := input.Close(); err != nil {
		t.Fatal(err)
	}
	if err := parent.Wait(); err != nil {
		t.Fatal(err)
	}
}

func TestProviderKnowsStreamsThatPeersEncodedAnew(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"stream":true}`:             "text/event-stream",
		"{\n  \"stream\": true\n}":    "text/event-stream",
		`{"stream": false}`:           "application/json",
		`{"messages":[{"role":"a"}]}`: "application/json",
	} {
		answer := httptest.NewRecorder()
		Provider(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body)))
		if got := answer.Header().Get("Content-Type"); got != want {
			t.Errorf("%s: got %s; want %s", body, got, want)
		}
	}
}

func TestRestWaitsForABusyPeer(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		script    string
		waits     bool
		limit     time.Duration
		cancelled bool
	}{
		{script: "read line", limit: time.Minute},
		{script: "while :; do :; done", waits: true, limit: 4 * restLook},
		{script: "while :; do :; done", limit: time.Minute, cancelled: true},
	} {
		ctx, stop := context.WithCancel(t.Context())
		process := exec.CommandContext(ctx, "sh", "-c", test.script)
		if _, err := process.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		if err := process.Start(); err != nil {
			t.Fatal(err)
		}
		resting, cancel := context.WithCancel(ctx)
		if test.cancelled {
			cancel()
		}
		begin := time.Now()
		Rest(resting, Target{PID: process.Process.Pid}, test.limit)
		if took := time.Since(begin); took >= test.limit != test.waits {
			t.Errorf("%s: waited %v with a limit of %v", test.script, took, test.limit)
		}
		cancel()
		stop()
		_ = process.Wait()
	}
}
