package app

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"modelgateway/dataplane/internal/config"
)

// unread is a pipe that nobody reads until it is closed.
type unread struct {
	read chan struct{}
	text bytes.Buffer
}

func (u *unread) Write(p []byte) (int, error) {
	<-u.read
	return u.text.Write(p)
}

// A pipe that nobody reads, such as that of a stopped log collector, stops no request.
func TestStalledLogStopsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := &unread{read: make(chan struct{})}
		cfg := config.Default()
		o, err := newOutput(out, &cfg, "test")
		if err != nil {
			t.Fatal(err)
		}
		o.access.Start()
		const lines = 1000
		for range lines {
			o.log.Warn("a line of the log")
			o.access.Line(slog.LevelInfo, time.Now(), "request", nil)
		}
		close(out.read)
		o.access.Stop()
		o.close()
		if log, access := strings.Count(out.text.String(), "a line of the log"), strings.Count(out.text.String(), "request"); log != lines || access != lines {
			t.Errorf("%d and %d lines were written after the log went on; want %d of each", log, access, lines)
		}
	})
}
