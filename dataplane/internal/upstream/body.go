package upstream

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"modelgateway/dataplane/internal/provider"
)

// watch cuts a call whose provider is silent for too long: before the first
// byte, or between two.
type watch struct {
	cancel context.CancelCauseFunc
	idle   time.Duration
	begun  atomic.Bool
	// timer runs to the first byte, and from then on only while something is read: a slow client is not a silent provider.
	timer *time.Timer
	// total runs to the end of the call's time, unless its context ends before that.
	total *time.Timer
}

// startWatch watches a call that begins now.
func startWatch(ctx context.Context, limits Limits) (context.Context, *watch) {
	bounded, has := ctx.Deadline()
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watch{cancel: cancel, idle: limits.Idle}
	w.timer = time.AfterFunc(limits.FirstByte, w.expire)
	if !has || time.Until(bounded) > limits.Total {
		w.total = time.AfterFunc(limits.Total, func() { cancel(provider.ErrTotalTimeout) })
	}
	return ctx, w
}

func (w *watch) expire() {
	if w.begun.Load() {
		w.cancel(provider.ErrIdleTimeout)
	} else {
		w.cancel(provider.ErrFirstByteTimeout)
	}
}

// reading and read stand around each read of the answer.
func (w *watch) reading() {
	if w.begun.Load() {
		w.timer.Reset(w.idle)
	}
}

func (w *watch) read(n int) {
	if n > 0 || w.begun.Load() {
		w.timer.Stop()
		w.begun.Store(true)
	}
}

// end ends the call.
func (w *watch) end() {
	w.timer.Stop()
	if w.total != nil {
		w.total.Stop()
	}
	w.cancel(nil)
}

// timedBody reads an answer under its time limits.
type timedBody struct {
	io.ReadCloser
	ctx   context.Context
	watch *watch
}

// Read reads under the limit of the first byte, then of silence. The error of
// a call that was cut says by which limit.
func (b *timedBody) Read(p []byte) (int, error) {
	b.watch.reading()
	n, err := b.ReadCloser.Read(p)
	b.watch.read(n)
	if err != nil && !errors.Is(err, io.EOF) {
		if cause := context.Cause(b.ctx); cause != nil {
			err = cause
		}
	}
	return n, err
}

// Close ends the call.
func (b *timedBody) Close() error {
	b.watch.end()
	return b.ReadCloser.Close() //nolint:wrapcheck // passed through as the body's own
}
