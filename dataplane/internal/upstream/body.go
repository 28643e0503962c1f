package upstream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// Body is an outgoing body in memory that is given back only when nobody
// reads it any more: a transport may still be sending it when the answer has
// come.
type Body struct {
	data []byte
	refs atomic.Int32
	free func()
}

// NewBody returns a Body with one reference, its maker's, who calls Release.
// free is called when the last reference is gone; it may be nil.
func NewBody(data []byte, free func()) *Body {
	b := &Body{data: data, free: free}
	b.refs.Store(1)
	return b
}

// Len is the length in bytes.
func (b *Body) Len() int { return len(b.data) }

// Release drops the maker's reference.
func (b *Body) Release() {
	if b.refs.Add(-1) == 0 && b.free != nil {
		b.free()
	}
}

func (b *Body) open() io.ReadCloser {
	b.refs.Add(1)
	return &bodyReader{Reader: bytes.NewReader(b.data), body: b}
}

type bodyReader struct {
	*bytes.Reader
	body *Body
	once sync.Once
}

func (r *bodyReader) Close() error {
	r.once.Do(r.body.Release)
	return nil
}

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
			b.timer = time.AfterFunc(b.idle, func() { b.cancel(ErrIdleTimeout) })
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
	return b.ReadCloser.Close()
}
