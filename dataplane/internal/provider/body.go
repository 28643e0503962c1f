package provider

import (
	"bytes"
	"io"
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

// Bytes is the body itself, which is not to be changed, nor read without a
// reference.
func (b *Body) Bytes() []byte { return b.data }

// Hold adds a reference. One that is never released keeps the Body from being
// given back: its memory is left to the garbage collector.
func (b *Body) Hold() { b.refs.Add(1) }

// Release drops a reference.
func (b *Body) Release() {
	if b.refs.Add(-1) == 0 && b.free != nil {
		b.free()
	}
}

// Open returns a reader of the whole body. It holds no reference, and is what
// net/http knows to be in memory: such a body leaves with the headers in one
// write.
func (b *Body) Open() io.ReadCloser { return io.NopCloser(bytes.NewReader(b.data)) }
