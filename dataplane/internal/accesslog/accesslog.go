// Package accesslog owns the line that the log has about each request.
//
// Lines are gathered and written together: a write for each costs more than
// the line itself. Each is written within flushEvery, and what is left when
// the log stops. A process that is killed loses the last ones; what they tell
// of money is in the usage events, which it does not lose.
package accesslog

import (
	"io"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"modelgateway/dataplane/internal/jsonspan"
)

const (
	// flushEvery is how long a line waits at most.
	flushInterval = 200 * time.Millisecond
	// flushSize is how much waits at most.
	flushSize = 32 << 10
)

// Log writes lines in the form of slog's JSON, but makes them itself: slog's
// handler takes four times as long, and a request has no other line. It is safe
// for concurrent use.
type Log struct {
	level slog.Leveler
	out   lineBuffer
	stop  chan struct{}
	done  chan struct{}
}

// New returns a Log that is not started: it gathers all the same.
func New(out io.Writer, level slog.Leveler) *Log {
	return &Log{level: level, out: lineBuffer{out: out}, stop: make(chan struct{}), done: make(chan struct{})}
}

// Start begins to write lines in time, until Stop.
func (l *Log) Start() {
	go func() {
		defer close(l.done)
		ticker := time.NewTicker(flushInterval)
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
	l.out.close()
}

// usualLine is what most lines fit into.
const usualLineSize = 768

// Line adds a line. Texts, integers and truth values are written as such,
// anything else as its text.
func (l *Log) Line(level slog.Level, at time.Time, message string, attrs []slog.Attr) {
	if level < l.level.Level() {
		return
	}
	var room [usualLineSize]byte
	line := at.AppendFormat(append(room[:0], `{"time":"`...), time.RFC3339Nano)
	line = append(append(line, `","level":"`...), level.String()...)
	line = jsonspan.AppendString(append(line, `","msg":`...), message)
	for _, a := range attrs {
		line = jsonspan.AppendString(append(line, ','), a.Key)
		line = appendValue(append(line, ':'), a.Value)
	}
	l.out.add(append(line, "}\n"...))
}

func appendValue(line []byte, v slog.Value) []byte {
	switch v.Kind() {
	case slog.KindInt64:
		return strconv.AppendInt(line, v.Int64(), 10)
	case slog.KindBool:
		return strconv.AppendBool(line, v.Bool())
	default:
		return jsonspan.AppendString(line, v.String())
	}
}

// gathered holds back lines until there are many of them or they are flushed.
type lineBuffer struct {
	out io.Writer

	mu     sync.Mutex
	lines  []byte
	closed bool
}

func (g *lineBuffer) add(line []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lines = append(g.lines, line...)
	if g.closed || len(g.lines) >= flushSize {
		g.write()
	}
}

func (g *lineBuffer) flush() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.write()
}

func (g *lineBuffer) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.write()
}

// write writes all lines. The lock is held.
func (g *lineBuffer) write() {
	if len(g.lines) > 0 {
		_, _ = g.out.Write(g.lines) // a log that cannot be written cannot say so
		g.lines = g.lines[:0]
	}
}
