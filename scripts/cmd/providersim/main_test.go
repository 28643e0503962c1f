package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/scripts/providersim"
)

func TestParseOptions(t *testing.T) {
	t.Setenv("PROVIDERSIM_KEYS", "a, b,")
	o, err := parseOptions([]string{"-chunk", "1ms"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a", "b"}, o.sim.Keys); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
	if o.addr != "127.0.0.1:9100" || o.sim.ChunkDelay != time.Millisecond {
		t.Errorf("options %+v", o)
	}
	if _, err := parseOptions([]string{"-keys"}); err == nil {
		t.Error("a flag without its value is accepted")
	}
}

// TestRun serves one request that ends and one that hangs, and stops.
func TestRun(t *testing.T) {
	t.Parallel()
	journal := filepath.Join(t.TempDir(), "journal.ndjson")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	logs, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := run(ctx, slog.New(slog.NewJSONHandler(w, nil)), []string{"-addr", "127.0.0.1:0", "-journal", journal, "-stop-timeout", "1ms"})
		_ = w.CloseWithError(io.EOF)
		done <- err
	}()
	dec := json.NewDecoder(logs)
	var line struct{ Addr string }
	if err := dec.Decode(&line); err != nil {
		t.Fatalf("read log: %v", err)
	}
	go func() { _, _ = io.Copy(io.Discard, io.MultiReader(dec.Buffered(), logs)) }()

	whole := post(t, line.Addr, `{"model":"m","messages":[{"role":"user","content":"hi"}]}`)
	if _, err := io.ReadAll(whole.Body); err != nil {
		t.Errorf("read answer: %v", err)
	}
	stalled := post(t, line.Addr, `{"model":"m@stall=0","stream":true,"messages":[{"role":"user","content":"hi"}]}`)
	stop()
	if _, err := io.ReadAll(stalled.Body); err == nil {
		t.Error("the stalled stream ended without an error")
	}
	if err := <-done; err != nil {
		t.Errorf("run: %v", err)
	}
	text, err := os.ReadFile(journal)
	if err != nil {
		t.Fatal(err)
	}
	var outcomes []string
	for raw := range bytes.Lines(text) {
		var e providersim.Entry
		if err := json.Unmarshal(raw, &e); err != nil {
			t.Fatalf("journal line %s: %v", raw, err)
		}
		outcomes = append(outcomes, e.Outcome)
	}
	if diff := cmp.Diff([]string{providersim.OutcomeFinished, providersim.OutcomeReleased}, outcomes); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
}

func post(t *testing.T, addr, body string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer k")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func TestRunFails(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	for _, args := range [][]string{{"-addr", "nowhere"}, {"-journal", t.TempDir()}, {"-bogus"}} {
		if err := run(t.Context(), log, args); err == nil {
			t.Errorf("run %v returns no error", args)
		}
	}
}
