package httpapi

import (
	"sync"
	"sync/atomic"
)

// buffers holds the buffers that bodies are read into. Large ones are left to the garbage collector.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

const maxPooledBuffer = 4 << 20

func getBuffer() *[]byte { return buffers.Get().(*[]byte) }

func putBuffer(b *[]byte) {
	if cap(*b) <= maxPooledBuffer {
		*b = (*b)[:0]
		buffers.Put(b)
	}
}

// refCountedBuffer is a pooled buffer that several users share. The last release puts it back into the pool. A
// provider's connection may still be sending the request body after the handler has read the answer.
type refCountedBuffer struct {
	buffer *[]byte
	users  atomic.Int32
}

// newRefCountedBuffer takes over the buffer with one reference, that of the caller.
func newRefCountedBuffer(b *[]byte) *refCountedBuffer {
	c := &refCountedBuffer{buffer: b}
	c.users.Store(1)
	return c
}

func (c *refCountedBuffer) bytes() []byte { return *c.buffer }

func (c *refCountedBuffer) retain() { c.users.Add(1) }

func (c *refCountedBuffer) release() {
	if c.users.Add(-1) == 0 {
		putBuffer(c.buffer)
	}
}
