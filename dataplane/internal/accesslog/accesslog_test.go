package accesslog

import (
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// output is what was written so far.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
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

func TestLinesAreWrittenInTime(t *testing.T) {
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
		time.Sleep(flushEvery)
		synctest.Wait()
		want := `{"time":"1970-01-01T00:00:17Z","level":"INFO","msg":"request","request_id":"req_1","status":200}` + "\n"
		if got := out.String(); got != want {
			t.Errorf("got %s; want %s", got, want)
		}
		l.Stop()
	})
}

func TestNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	var out output
	l := New(&out, slog.LevelInfo)
	l.Start()
	const lines = 2000 // more than is gathered
	for i := range lines {
		l.Line(slog.LevelInfo, time.Now(), "request", []slog.Attr{slog.Int("n", i)})
	}
	l.Stop()
	l.Line(slog.LevelInfo, time.Now(), "request", []slog.Attr{slog.Int("n", lines)}) // one that came late
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
