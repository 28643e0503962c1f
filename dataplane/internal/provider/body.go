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
	// rest follows data.
	rest [][]byte
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

// NewBodyOf is NewBody for a body that consists of parts.
func NewBodyOf(parts [][]byte, free func()) *Body {
	b := NewBody(nil, free)
	if len(parts) > 0 {
		b.data, b.rest = parts[0], parts[1:]
	}
	return b
}

// Len returns the length in bytes.
func (b *Body) Len() int {
	n := len(b.data)
	for _, part := range b.rest {
		n += len(part)
	}
	return n
}

// AppendTo appends the body to dst.
func (b *Body) AppendTo(dst []byte) []byte {
	dst = append(dst, b.data...)
	for _, part := range b.rest {
		dst = append(dst, part...)
	}
	return dst
}

// AppendParts appends the parts of the body to list. They must not be modified, nor be read without a reference.
func (b *Body) AppendParts(list [][]byte) [][]byte {
	return append(append(list, b.data), b.rest...)
}

// Retain adds a reference. If a reference is never released, the garbage collector frees the memory.
func (b *Body) Retain() { b.refs.Add(1) }

// Release drops a reference.
func (b *Body) Release() {
	if b.refs.Add(-1) == 0 && b.free != nil {
		b.free()
	}
}

// NewReader returns a reader of the whole body. It has no reference of its own. net/http recognizes the type of the reader
// of a body in one part as a body in memory, which it sends together with the headers in one write.
func (b *Body) NewReader() io.ReadCloser {
	if len(b.rest) == 0 {
		return io.NopCloser(bytes.NewReader(b.data))
	}
	readers := make([]io.Reader, 0, 1+len(b.rest))
	for _, part := range b.AppendParts(nil) {
		readers = append(readers, bytes.NewReader(part))
	}
	return io.NopCloser(io.MultiReader(readers...))
}
