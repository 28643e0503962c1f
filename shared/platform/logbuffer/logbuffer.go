// Package logbuffer keeps a slow or stalled log output, such as a full pipe, from stopping the process that writes to it.
package logbuffer

import (
	"bytes"
	"io"
	"log/slog"
	"sync"
	"time"
)

const (
	// maxPending bounds the text that waits for the output, in bytes: a second of the access log under full load.
	maxPending = 4 << 20
	// maxKept bounds the buffers that are kept for later lines.
	maxKept = 256 << 10
	// closeTimeout bounds how long Close waits for the output.
	closeTimeout = time.Second
)

// Writer passes log lines on to an output. Write never waits for the output: lines beyond maxPending are dropped, and
// when the output takes lines again, a line says how many. It is safe for concurrent use. Lines of a process that is
// killed may be lost.
type Writer struct {
	out io.Writer
	// wake has a value while there may be something to write.
	wake chan struct{}
	done chan struct{}

	mu      sync.Mutex
	pending []byte
	dropped int
	closed  bool
}

// New returns a Writer, which must be closed.
func New(out io.Writer) *Writer {
	w := &Writer{out: out, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go w.run()
	return w
}

// Write implements io.Writer. It takes whole lines, and never fails.
func (w *Writer) Write(lines []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || len(w.pending)+len(lines) > maxPending {
		w.dropped += bytes.Count(lines, []byte("\n"))
		return len(lines), nil
	}
	w.pending = append(w.pending, lines...)
	select {
	case w.wake <- struct{}{}:
	default:
	}
	return len(lines), nil
}

// Close waits until all lines are written, for closeTimeout at most. Later lines are dropped.
func (w *Writer) Close() {
	w.mu.Lock()
	w.closed = true
	close(w.wake)
	w.mu.Unlock()
	timeout := time.NewTimer(closeTimeout)
	defer timeout.Stop()
	select {
	case <-w.done:
	case <-timeout.C:
	}
}

// run writes until Close.
func (w *Writer) run() {
	defer close(w.done)
	log := slog.New(slog.NewJSONHandler(w.out, nil))
	var lines []byte
	for range w.wake {
		w.mu.Lock()
		lines, w.pending = w.pending, lines[:0]
		dropped := w.dropped
		w.dropped = 0
		w.mu.Unlock()
		_, _ = w.out.Write(lines) // a failed write cannot be reported anywhere
		if dropped > 0 {
			log.Warn("log lines were dropped because the output did not take them in time", slog.Int("lines", dropped))
		}
		if cap(lines) > maxKept {
			lines = nil
		}
	}
}
