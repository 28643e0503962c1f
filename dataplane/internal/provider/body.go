package provider

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"
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

// Open returns a reader of the whole body, which holds a reference until it is
// closed.
func (b *Body) Open() io.ReadCloser {
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
