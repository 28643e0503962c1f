package providersim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestJournalEntry(t *testing.T) {
	t.Parallel()
	clock := time.Unix(1_800_000_000, 0).UTC()
	b := setup(t, Config{Now: func() time.Time { return clock }})
	body := bodyOf(Chat, model("out=2,cached=1"))
	r := b.request(t, http.MethodPost, paths[Chat]+"?x=1", body)
	r.Header.Set("User-Agent", "tester")
	r.Header.Set("X-Client-Request-Id", "corr-1")
	answer := readAll(t, do(t, r))
	got := b.last(t)
	want := Entry{
		Seq: 1, Time: clock, Method: "POST", Path: "/v1/chat/completions", Query: "x=1",
		Headers: map[string][]string{
			"accept-encoding": {"gzip"}, "anthropic-version": {"2023-06-01"}, "authorization": {"Bearer test-key"},
			"content-length": {strconv.Itoa(len(body))}, "content-type": {"application/json"}, "user-agent": {"tester"}, "x-client-request-id": {"corr-1"},
		},
		Body: body, BodyBytes: int64(len(body)), APIKey: "test-key", Format: Chat, Model: "sim@out=2,cached=1", Directives: "out=2,cached=1",
		Done: true, Outcome: OutcomeFinished, Status: 200, BytesSent: int64(len(answer)), Finished: true,
		RequestID: "req_t000001", AnswerID: "chatcmpl-t000001", PromptCount: 8, Delivered: 2,
		Usage:  mustJSON(decode[chatCompletion](t, answer).Usage),
		Counts: &Counts{Input: 7, CachedInput: 1, Output: 2},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entry (-want +got):\n%s", diff)
	}
}

func TestJournalQueries(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	for _, m := range []string{"a", "b@out=1", "a@out=2"} {
		b.ask(t, Chat, map[string]string{"model": `"` + m + `"`})
	}
	tests := []struct {
		query string
		want  []int64
	}{
		{"", []int64{1, 2, 3}},
		{"?since=1", []int64{2, 3}},
		{"?model=a", []int64{1, 3}},
		{"?model=b@out=1", []int64{2}},
		{"?model=a&since=1&wait_ms=1000", []int64{3}},
		{"?model=c", nil},
	}
	for _, tt := range tests {
		_, body := b.call(t, http.MethodGet, "/_sim/journal"+tt.query, "")
		var seqs []int64
		for _, e := range decode[[]Entry](t, body) {
			seqs = append(seqs, e.Seq)
		}
		if diff := cmp.Diff(tt.want, seqs); diff != "" {
			t.Errorf("journal%s (-want +got):\n%s", tt.query, diff)
		}
	}
	_, lines := b.call(t, http.MethodGet, "/_sim/journal?format=ndjson", "")
	if got := strings.Split(strings.TrimSuffix(lines, "\n"), "\n"); len(got) != 3 || decode[Entry](t, got[2]).Seq != 3 {
		t.Errorf("ndjson %s", lines)
	}
	for _, bad := range []string{"?since=x", "?wait_ms=x"} {
		if status, _ := b.call(t, http.MethodGet, "/_sim/journal"+bad, ""); status != http.StatusBadRequest {
			t.Errorf("journal%s answered %d", bad, status)
		}
	}
	b.call(t, http.MethodDelete, "/_sim/journal", "")
	b.ask(t, Chat, nil)
	if e := b.sim.Journal(); len(e) != 1 || e[0].Seq != 4 {
		t.Errorf("after clearing: %d entries, first %d", len(e), e[0].Seq)
	}
}

func TestJournalIsBounded(t *testing.T) {
	t.Parallel()
	j := journal{next: 1, maxEntries: 3, maxBytes: 100}
	for i := range 5 {
		j.begin(&Entry{Body: strings.Repeat("x", i)})
	}
	if got := j.since(0, ""); len(got) != 3 || got[0].Seq != 3 {
		t.Errorf("%d entries from %d; want 3 from 3", len(got), got[0].Seq)
	}
	j.begin(&Entry{Body: strings.Repeat("x", 99)})
	if got := j.since(0, ""); len(got) != 1 || got[0].Seq != 6 {
		t.Errorf("%d entries from %d; want the large one alone", len(got), got[0].Seq)
	}
	j.end(&Entry{Seq: 2, Done: true}) // was dropped before
	if entries, dropped, _ := j.sizes(); entries != 1 || dropped != 5 {
		t.Errorf("%d entries, %d dropped; want 1 and 5", entries, dropped)
	}
}

// lineWriter takes one line per Write and fails on demand.
type lineWriter struct {
	mu    sync.Mutex
	lines [][]byte
	fail  error
}

func (w *lineWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fail != nil {
		return 0, w.fail
	}
	w.lines = append(w.lines, bytes.Clone(b))
	return len(b), nil
}

func TestJournalWriter(t *testing.T) {
	t.Parallel()
	w := &lineWriter{}
	b := setup(t, Config{JournalWriter: w})
	b.ask(t, Chat, nil)
	b.stream(t, Responses, streamed(""))
	var written []Entry
	for _, line := range w.lines {
		if bytes.Count(line, []byte("\n")) != 1 || line[len(line)-1] != '\n' {
			t.Errorf("one Write is not one line: %q", line)
		}
		written = append(written, decode[Entry](t, string(line)))
	}
	kept := decode[[]Entry](t, string(mustJSON(b.sim.Journal())))
	if diff := cmp.Diff(kept, written); diff != "" {
		t.Errorf("file and memory differ (-memory +file):\n%s", diff)
	}
	w.fail = errors.New("disk full")
	b.ask(t, Chat, nil)
	if got := b.sim.Stats().JournalWriteErrors; got != 1 {
		t.Errorf("%d write errors counted; want 1", got)
	}
}

func TestRulesApplyInOrder(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	post := func(rule string) (int, string) { return b.call(t, http.MethodPost, "/_sim/rules", rule) }
	for _, bad := range []string{`{`, `{"directives":"bogus"}`, `{"extra":1}`} {
		if status, _ := post(bad); status != http.StatusBadRequest {
			t.Errorf("rule %s answered %d", bad, status)
		}
	}
	post(`{"match":{"model":"a"},"directives":"status=500","times":1}`)
	post(`{"match":{"path":"/v1/responses"},"directives":"status=501"}`)
	post(`{"match":{"contains":"needle"},"directives":"status=502"}`)
	post(`{"match":{"model":"c"},"directives":"status=503"}`)
	tests := []struct {
		name   string
		format Format
		change map[string]string
		want   int
	}{
		{"no rule", Chat, nil, 200},
		{"model", Chat, map[string]string{"model": `"a"`}, 500},
		{"used up", Chat, map[string]string{"model": `"a"`}, 200},
		{"path", Responses, nil, 501},
		{"path, without a limit of uses", Responses, nil, 501},
		{"body", Chat, map[string]string{"user": `"a needle"`}, 502},
		{"takes precedence over the model name", Chat, map[string]string{"model": `"c@status=400"`}, 503},
	}
	for _, tt := range tests {
		if status, body := b.ask(t, tt.format, tt.change); status != tt.want {
			t.Errorf("%s: answered %d %s; want %d", tt.name, status, body, tt.want)
		}
	}
	if e := b.last(t); e.Rule != "rule_4" || e.Directives != "status=400,status=503" {
		t.Errorf("journal has rule %q, directives %q", e.Rule, e.Directives)
	}
	_, list := b.call(t, http.MethodGet, "/_sim/rules", "")
	var used []int64
	for _, r := range decode[[]Rule](t, list) {
		used = append(used, r.Used)
	}
	if diff := cmp.Diff([]int64{1, 2, 1, 1}, used); diff != "" {
		t.Errorf("uses (-want +got):\n%s", diff)
	}
	for _, want := range []int{http.StatusNoContent, http.StatusNotFound} {
		if status, _ := b.call(t, http.MethodDelete, "/_sim/rules/rule_3", ""); status != want {
			t.Errorf("removing a rule: answered %d; want %d", status, want)
		}
	}
	if status, _ := b.ask(t, Chat, map[string]string{"user": `"a needle"`}); status != http.StatusOK {
		t.Errorf("after removing the rule: %d", status)
	}
	b.call(t, http.MethodDelete, "/_sim/rules", "")
	if status, _ := b.ask(t, Responses, nil); status != http.StatusOK {
		t.Errorf("after clearing: %d", status)
	}
}

func TestStatsAndReset(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	b.ask(t, Chat, nil)
	b.ask(t, Chat, map[string]string{"foo": "1"})
	b.stream(t, Messages, streamed("out=1"))
	b.create(t, "")
	_, body := b.call(t, http.MethodGet, "/_sim/stats", "")
	want := Stats{
		Requests: 4, Streams: 1, Events: 7, Finished: 4,
		ByOutcome:      map[string]int64{OutcomeFinished: 4},
		ByStatus:       map[string]int64{"200": 3, "400": 1},
		ByFormat:       map[Format]int64{Chat: 2, Messages: 1, Videos: 1},
		Usage:          Counts{Input: 16, Output: 17},
		Videos:         1,
		JournalEntries: 4,
	}
	if diff := cmp.Diff(want, decode[Stats](t, body)); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
	if status, _ := b.call(t, http.MethodPost, "/_sim/reset", ""); status != http.StatusNoContent {
		t.Errorf("reset answered %d", status)
	}
	empty := Stats{ByOutcome: map[string]int64{}, ByStatus: map[string]int64{}, ByFormat: map[Format]int64{}}
	if diff := cmp.Diff(empty, b.sim.Stats()); diff != "" {
		t.Errorf("stats after reset (-want +got):\n%s", diff)
	}
}

// With the race detector this also finds unsynchronised access.
func TestConcurrentRequestsAreEachRecordedOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{IDPrefix: "c"})
	formats := []Format{Chat, Responses, Messages, Images, Videos}
	var wg sync.WaitGroup
	for i := range 50 {
		f := formats[i%len(formats)]
		change := map[string]string{}
		if i%2 == 0 && f != Videos {
			change["stream"] = "true"
		}
		r := b.request(t, http.MethodPost, paths[f], bodyOf(f, change))
		wg.Go(func() {
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			var sink bytes.Buffer
			if _, err := sink.ReadFrom(resp.Body); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	seen := map[string]bool{}
	for _, e := range b.sim.Journal() {
		seen[e.RequestID] = true
		if !e.Finished || e.AnswerID == "" && e.Format != Images {
			t.Errorf("entry %s", mustJSON(e))
		}
	}
	if len(seen) != 50 {
		t.Errorf("%d request ids; want 50", len(seen))
	}
}

// FuzzRequest checks that no body makes the simulator panic and that every answer is JSON.
func FuzzRequest(f *testing.F) {
	for format := range contentMembers {
		f.Add(string(format), bodyOf(format, nil))
	}
	f.Add("chat", bodyOf(Chat, map[string]string{"tools": chatTools, "tool_choice": `"required"`}))
	f.Add("messages", bodyOf(Messages, map[string]string{"thinking": `{"type":"enabled","budget_tokens":1}`}))
	f.Fuzz(func(t *testing.T, format, body string) {
		m, err := splitObject([]byte(body))
		if err != nil {
			return
		}
		if bad := check(Format(format), m, http.Header{}); bad != nil && !json.Valid(bad.envelope(Format(format), "req")) {
			t.Errorf("envelope of %+v is not JSON", bad)
		}
		if n := m.contentBytes(Format(format)); n > int64(len(body)) {
			t.Errorf("counted %d bytes of %d", n, len(body))
		}
	})
}

// Tests wait for a running request by its model.
func TestJournalContainsRunningRequests(t *testing.T) {
	t.Parallel()
	paused := make(chan struct{})
	b := setup(t, Config{SleepFunc: func(ctx context.Context, _ time.Duration) {
		close(paused)
		<-ctx.Done()
	}})
	go func() {
		if resp, err := http.DefaultClient.Do(b.request(t, http.MethodPost, paths[Chat], bodyOf(Chat, model("delay=1s")))); err == nil {
			_ = resp.Body.Close()
		}
	}()
	<-paused
	entries := b.sim.JournalSince(0, "sim")
	if len(entries) != 1 || entries[0].Done || entries[0].Directives != "delay=1s" {
		t.Errorf("got %+v; want the one that runs", entries)
	}
}
