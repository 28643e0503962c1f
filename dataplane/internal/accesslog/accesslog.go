// Package accesslog owns the line that the log has about each request.
//
// Lines are gathered and written together: a write for each costs more than
// the line itself. Each is written within flushEvery, and what is left when
// the log stops. A process that is killed loses the last ones; what they tell
// of money is in the usage events, which it does not lose.
package accesslog

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"time"
)

const (
	// flushEvery is how long a line waits at most.
	flushEvery = 200 * time.Millisecond
	// flushSize is how much waits at most.
	flushSize = 32 << 10
)

// Log writes lines in the form of slog's JSON. It is safe for concurrent use.
type Log struct {
	handler slog.Handler
	out     gathered
	stop    chan struct{}
	done    chan struct{}
}

// New returns a Log that is not started: it gathers all the same.
func New(out io.Writer, level slog.Leveler) *Log {
	l := &Log{out: gathered{out: out}, stop: make(chan struct{}), done: make(chan struct{})}
	l.handler = slog.NewJSONHandler(&l.out, &slog.HandlerOptions{Level: level})
	return l
}

// Start begins to write lines in time, until Stop.
func (l *Log) Start() {
	go func() {
		defer close(l.done)
		ticker := time.NewTicker(flushEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				l.out.flush()
			case <-l.stop:
				return
			}
		}
	}()
}

// Stop writes what is left. Lines that come later are written at once.
func (l *Log) Stop() {
	close(l.stop)
	<-l.done
	l.out.end()
}

// Line adds a line.
func (l *Log) Line(level slog.Level, at time.Time, message string, attrs []slog.Attr) {
	ctx := context.Background() // the line outlives its request
	if !l.handler.Enabled(ctx, level) {
		return
	}
	record := slog.NewRecord(at, level, message, 0)
	record.AddAttrs(attrs...)
	_ = l.handler.Handle(ctx, record) // a log that cannot be written cannot say so
}

// gathered holds back what is written until there is much of it or it is
// flushed.
type gathered struct {
	out io.Writer

	mu    sync.Mutex
	lines []byte
	ended bool
}

// Write implements io.Writer.
func (g *gathered) Write(line []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lines = append(g.lines, line...)
	if g.ended || len(g.lines) >= flushSize {
		g.write()
	}
	return len(line), nil
}

func (g *gathered) flush() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.write()
}

func (g *gathered) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
	g.write()
}

// write writes all lines. The lock is held.
func (g *gathered) write() {
	if len(g.lines) > 0 {
		_, _ = g.out.Write(g.lines) // see Line
		g.lines = g.lines[:0]
	}
}
