package upstream

import (
	"context"
	"errors"
	"io"
	"time"
)

// timedBody reads an answer under its time limits.
type timedBody struct {
	io.ReadCloser
	ctx   context.Context
	first *time.Timer
	// silence runs from the first byte on, and only while something is read: a slow client is not a silent provider.
	silence *time.Timer
	idle    time.Duration
	begun   bool
	release func()
}

// Read reads under the limit of the first byte, then of silence. The error of
// a call that was cut says by which limit.
func (b *timedBody) Read(p []byte) (int, error) {
	if b.begun {
		b.silence.Reset(b.idle)
	}
	n, err := b.ReadCloser.Read(p)
	b.silence.Stop()
	if n > 0 && !b.begun {
		b.begun = true
		b.first.Stop()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		if cause := context.Cause(b.ctx); cause != nil {
			err = cause
		}
	}
	return n, err
}

// Close ends the call.
func (b *timedBody) Close() error {
	b.silence.Stop()
	b.release()
	return b.ReadCloser.Close() //nolint:wrapcheck // passed through as the body's own
}
