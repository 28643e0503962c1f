package httpapi

import (
	"sync"
	"sync/atomic"
)

// buffers are what bodies are read into. Large ones are not kept.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

const keepBuffer = 4 << 20

func getBuffer() *[]byte { return buffers.Get().(*[]byte) }

func putBuffer(b *[]byte) {
	if cap(*b) <= keepBuffer {
		*b = (*b)[:0]
		buffers.Put(b)
	}
}

// shared is a buffer that is put back when the last of its users is done: a
// provider's connection may still be sending it when its answer has come.
type shared struct {
	buffer *[]byte
	users  atomic.Int32
}

func newShared(b *[]byte) *shared {
	s := &shared{buffer: b}
	s.users.Store(1)
	return s
}

func (s *shared) retain() { s.users.Add(1) }

func (s *shared) release() {
	if s.users.Add(-1) == 0 {
		putBuffer(s.buffer)
	}
}
