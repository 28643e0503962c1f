package accesslog

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestLinesAreWrittenInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := New(&out, slog.LevelInfo)
		l.Start()
		l.Line(slog.LevelInfo, time.Unix(17, 0).UTC(), "request", []slog.Attr{slog.String("request_id", "req_1"), slog.Int("status", 200)})
		l.Line(slog.LevelDebug, time.Now(), "request", nil)
		if synctest.Wait(); out.Len() != 0 {
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
	var out bytes.Buffer
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
