// Package buffer has the pools of the buffers that bodies are read into and written from.
package buffer

import (
	"errors"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
)

// ErrTooLarge says that a body is larger than its limit.
var ErrTooLarge = errors.New("buffer: body too large")

// Small buffers are in a pool of their own: a small body must not keep a large buffer from use. The garbage collector
// takes the largest.
const (
	maxSmall  = 64 << 10
	maxPooled = 4 << 20
)

var (
	small = sync.Pool{New: func() any { return new([]byte) }}
	large = sync.Pool{New: func() any { return new([]byte) }}
)

// Get returns an empty buffer, which Put takes back.
func Get() *[]byte { return small.Get().(*[]byte) }

// GetSized returns an empty buffer with room for n bytes, and not for many more.
func GetSized(n int) *[]byte {
	pool := &small
	if n > maxSmall {
		pool = &large
	}
	b := pool.Get().(*[]byte)
	if n > maxPooled && dropped.Load() > maxDropped {
		dropped.Store(0)
		runtime.GC()
	}
	if cap(*b) < n || cap(*b) > max(n+n/4, maxSmall) {
		*b = make([]byte, 0, n)
	}
	return b
}

// Put puts a buffer back.
func Put(b *[]byte) {
	*b = (*b)[:0]
	switch n := cap(*b); {
	case n <= maxSmall:
		small.Put(b)
	case n <= maxPooled:
		large.Put(b)
	default:
		dropped.Add(int64(n))
	}
}

// dropped is the size of the largest buffers, in bytes, that were dropped since the last collection that they have caused.
var dropped atomic.Int64

// maxDropped is how much of them may wait for the garbage collector, in bytes. It would start only when the heap has grown
// to its goal, and a buffer of 100 MiB on top of that exceeds the memory limit.
const maxDropped = 32 << 20

// Room is asked before a buffer grows.
type Room interface {
	// Grow asks for this number of bytes in total.
	Grow(to int64) error
	// Get returns an empty buffer of n bytes within the room, Put takes it back.
	Get(n int) *[]byte
	Put(b *[]byte)
}

// Pooled implements Get and Put of Room with the pools.
type Pooled struct{}

func (Pooled) Get(n int) *[]byte { return GetSized(n) }

func (Pooled) Put(b *[]byte) { Put(b) }

// firstRoom is the room for a body of unknown length, in bytes.
const firstRoom = 16 << 10

// ReadAll reads up to limit bytes into a buffer of the room, to which the caller puts it back. length is the declared length, negative if
// unknown: the room for a declared length is taken at once, that for an unknown one doubles. The error is ErrTooLarge, or
// that of r or room.
func ReadAll(r io.Reader, length, limit int64, room Room) (*[]byte, error) {
	if length > limit {
		return nil, ErrTooLarge
	}

	granted := length
	if granted < 0 {
		granted = min(firstRoom, limit)
	}
	if err := room.Grow(granted); err != nil {
		return nil, err
	}

	b := room.Get(int(granted) + 1) // the last byte shows that the body is longer
	for {
		n, err := r.Read((*b)[len(*b) : granted+1])
		switch *b = (*b)[:len(*b)+n]; {
		case int64(len(*b)) > limit:
			err = ErrTooLarge
		case errors.Is(err, io.EOF):
			return b, nil
		case err == nil && int64(len(*b)) > granted:
			granted = min(2*granted, limit)
			if err = room.Grow(granted); err == nil {
				b = moved(room, b, int(granted)+1)
			}
		}

		if err != nil {
			room.Put(b)
			return nil, err
		}
	}
}

// moved returns a buffer of n bytes with the content of b, which it puts back.
func moved(room Room, b *[]byte, n int) *[]byte {
	grown := room.Get(n)
	*grown = append(*grown, *b...)
	room.Put(b)
	return grown
}
