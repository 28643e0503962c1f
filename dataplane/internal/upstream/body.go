package upstream

import (
	"context"
	"errors"
	"io"
	"time"

	"modelgateway/dataplane/internal/provider"
)

// timedBody reads an answer under its time limits.
type timedBody struct {
	io.ReadCloser
	ctx     context.Context
	idle    time.Duration
	first   *time.Timer
	timer   *time.Timer
	cancel  context.CancelCauseFunc
	release func()
}

// Read reads and restarts the idle limit. The error of a call that was cut
// says by which limit.
func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		if b.timer == nil {
			b.first.Stop()
			b.timer = time.AfterFunc(b.idle, func() { b.cancel(provider.ErrIdleTimeout) })
		} else {
			b.timer.Reset(b.idle)
		}
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
	if b.timer != nil {
		b.timer.Stop()
	}
	b.release()
	return b.ReadCloser.Close() //nolint:wrapcheck // passed through as the body's own
}
