// Package accesslog writes one log line for each request.
//
// Lines are buffered and written together, because a write for each of them would cost more than the line itself. A
// line is written after flushInterval at the latest, and when the log stops. A killed process loses its last lines.
// Usage events are not affected: they are written to the spool.
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
	// flushInterval is how long a line may stay in the buffer.
	flushInterval = 200 * time.Millisecond
	// flushSize is how many bytes may stay in the buffer.
	flushSize = 32 << 10
)

// Log writes lines in the JSON format of slog. It formats them itself: slog's handler takes four times as long, and
// every request writes such a line. It is safe for concurrent use.
type Log struct {
	level slog.Leveler
	out   lineBuffer
	stop  chan struct{}
	done  chan struct{}
}

// New returns a Log that is not started. Lines are buffered already.
func New(out io.Writer, level slog.Leveler) *Log {
	return &Log{
		level: level,
		out:   lineBuffer{out: out},
		stop:  make(chan struct{}),
		done:  make(chan struct{}),
	}
}

// Start writes the buffer at regular intervals until Stop.
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

// Stop writes the buffer. Later lines are written at once.
func (l *Log) Stop() {
	close(l.stop)
	<-l.done
	l.out.close()
}

// usualLineSize is enough for most lines, in bytes.
const usualLineSize = 768

// Line adds a line. Integers and booleans are written as such, all other values as strings.
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

// lineBuffer collects lines until it is full or flushed.
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

// write writes all lines. The caller holds the lock.
func (g *lineBuffer) write() {
	if len(g.lines) > 0 {
		_, _ = g.out.Write(g.lines) // a failed write cannot be reported anywhere
		g.lines = g.lines[:0]
	}
}
