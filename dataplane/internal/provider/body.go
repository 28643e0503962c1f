package provider

import (
	"bytes"
	"io"
	"sync/atomic"
)

// Body is an outgoing request body in memory with a reference count: a transport may still be sending it after the
// answer has come.
type Body struct {
	data []byte
	refs atomic.Int32
	free func()
}

// NewBody returns a Body with one reference, that of the caller. free is called when the last reference is released;
// it may be nil.
func NewBody(data []byte, free func()) *Body {
	b := &Body{data: data, free: free}
	b.refs.Store(1)
	return b
}

// Len returns the length in bytes.
func (b *Body) Len() int { return len(b.data) }

// Bytes returns the body. It must not be modified, nor be read without a reference.
func (b *Body) Bytes() []byte { return b.data }

// Retain adds a reference. If a reference is never released, the garbage collector frees the memory.
func (b *Body) Retain() { b.refs.Add(1) }

// Release drops a reference.
func (b *Body) Release() {
	if b.refs.Add(-1) == 0 && b.free != nil {
		b.free()
	}
}

// NewReader returns a reader of the whole body. It has no reference of its own. net/http recognizes its type as a body
// in memory, which it sends together with the headers in one write.
func (b *Body) NewReader() io.ReadCloser { return io.NopCloser(bytes.NewReader(b.data)) }
