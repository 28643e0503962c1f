package accesslog

import (
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// output records the written text.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func TestLinesAreWrittenWithinTheFlushInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out output
		l := New(&out, slog.LevelInfo)
		l.Start()
		l.Line(slog.LevelInfo, time.Unix(17, 0).UTC(), "request", []slog.Attr{slog.String("request_id", "req_1"), slog.Int("status", 200)})
		l.Line(slog.LevelDebug, time.Now(), "request", nil)
		if synctest.Wait(); out.String() != "" {
			t.Errorf("written at once: %s", out.String())
		}
		time.Sleep(flushInterval)
		synctest.Wait()
		want := `{"time":"1970-01-01T00:00:17Z","level":"INFO","msg":"request","request_id":"req_1","status":200}` + "\n"
		if got := out.String(); got != want {
			t.Errorf("got %s; want %s", got, want)
		}
		l.Stop()
	})
}

// Plain values are equal byte for byte, escaped ones in meaning.
func TestLineEqualsThatOfSlog(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 7, 8, 9, 10, 11, 123456789, time.FixedZone("", 2*3600))
	tests := []struct {
		name  string
		attrs []slog.Attr
		same  bool
	}{
		{"no attributes", nil, true},
		{"usual", []slog.Attr{slog.String("request_id", "req_1"), slog.Int("status", -200), slog.Int64("us", 1<<60), slog.Bool("stream", true)}, true},
		{"quotes", []slog.Attr{slog.String("error", `say "no" \ at <a>&`)}, true},
		{"empty", []slog.Attr{slog.String("model", "")}, true},
		{"control", []slog.Attr{slog.String("error", "a\nb\r\t\x00\x1f\x7f\u2028c")}, false},
		{"letters", []slog.Attr{slog.String("error", "grüß 日本 \U0001F600")}, true},
		{"not UTF-8", []slog.Attr{slog.String("error", "a\xffb\xc3")}, false},
		{"longer than usual", []slog.Attr{slog.String("error", strings.Repeat("long ", usualLineSize))}, true},
		{"of another kind", []slog.Attr{slog.Any("error", errors.New("broken"))}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError + 1} {
				var out, want output
				record := slog.NewRecord(at, level, "request", 0)
				record.AddAttrs(tt.attrs...)
				h := slog.NewJSONHandler(&want, &slog.HandlerOptions{Level: slog.LevelInfo})
				if h.Enabled(t.Context(), level) {
					if err := h.Handle(t.Context(), record); err != nil {
						t.Fatal(err)
					}
				}
				l := New(&out, slog.LevelInfo)
				l.Line(level, at, "request", tt.attrs)
				l.out.flush()
				if tt.same && out.String() != want.String() {
					t.Errorf("%v: got %s; want %s", level, out.String(), want.String())
				}
				if diff := cmp.Diff(decode(t, want.String()), decode(t, out.String())); diff != "" {
					t.Errorf("%v: want -, got +:\n%s", level, diff)
				}
			}
		})
	}
}

// decode parses a line.
func decode(t *testing.T, line string) (got map[string]any) {
	t.Helper()
	if line == "" {
		return nil
	}
	if strings.Index(line, "\n") != len(line)-1 {
		t.Errorf("not one line: %q", line)
	}
	if err := json.Unmarshal([]byte(line), &got); err != nil {
		t.Errorf("%s: %v", line, err)
	}
	return got
}

func TestLineAllocatesNothing(t *testing.T) {
	var out output
	l := New(&out, slog.LevelInfo)
	l.out.lines = make([]byte, 0, flushSize)
	at, attrs := time.Now(), []slog.Attr{slog.String("request_id", "req_1"), slog.Int("status", 200), slog.Bool("stream", true)}
	if got := testing.AllocsPerRun(100, func() {
		l.Line(slog.LevelInfo, at, "request", attrs)
		l.out.lines = l.out.lines[:0]
	}); got > 0 {
		t.Errorf("%v allocations a line; want none", got)
	}
}

func TestStopWritesAllLines(t *testing.T) {
	t.Parallel()
	var out output
	l := New(&out, slog.LevelInfo)
	l.Start()
	const lines = 2000 // more than the buffer holds
	for i := range lines {
		l.Line(slog.LevelInfo, time.Now(), "request", []slog.Attr{slog.Int("n", i)})
	}
	l.Stop()
	l.Line(slog.LevelInfo, time.Now(), "request", []slog.Attr{slog.Int("n", lines)}) // a line after Stop
	written := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(written) != lines+1 {
		t.Fatalf("%d lines; want %d", len(written), lines+1)
	}
	for i, line := range written {
		var got struct{ N int }
		if err := json.Unmarshal([]byte(line), &got); err != nil || got.N != i {
			t.Fatalf("line %d is %s (%v)", i, line, err)
		}
	}
}
