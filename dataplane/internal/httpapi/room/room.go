// Package room holds answers in one piece until they are delivered. Their provider has been paid, so they are not
// refused like request bodies: an answer waits for memory, and is held in a file if none becomes free.
package room

import (
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"modelgateway/dataplane/internal/bytebudget"
	"modelgateway/dataplane/internal/httpapi/buffer"
)

// Rooms is the room for answers. It is safe for concurrent use.
type Rooms struct {
	// Memory bounds the bytes in memory, together with those of request bodies.
	Memory *bytebudget.Budget
	// Disk bounds the bytes in files in the folder Dir.
	Disk *bytebudget.Budget
	Dir  string
}

// maxWait bounds how long an answer waits for memory.
const maxWait = 15 * time.Second

// Owner is the request of an answer.
type Owner interface {
	// Yield is called before the answer waits. It gives back the memory that the request can do without, which may be
	// what its account has too much of.
	Yield()
}

// Answer is the room of one answer. One goroutine uses it at a time.
type Answer struct {
	memory, disk bytebudget.Grant
	dir          string
	owner        Owner
	// files are the buffers in files; next is the one that Grow has made for Get.
	files []file
	next  *[]byte
	// faults is the setting of the goroutine before the first file.
	faults bool
}

// Begin returns a room without bytes.
func (r *Rooms) Begin(account string, owner Owner) Answer {
	return Answer{
		memory: r.Memory.Begin(account),
		disk:   r.Disk.Begin(account),
		dir:    r.Dir,
		owner:  owner,
	}
}

// Event returns a room for the large events of a stream. They wait for memory and are not held in files.
func (r *Rooms) Event(account string, owner Owner) Event {
	return Event{r.Memory.Begin(account), owner}
}

// Event is the room of the large events of a stream.
type Event struct {
	bytebudget.Grant
	owner Owner
}

// Grow implements sse.Room. The error is one of the budget.
func (e *Event) Grow(to int64) error {
	return e.Await(to, maxWait, e.owner.Yield)
}

// Grow implements buffer.Room. The error is one of the budget.
func (a *Answer) Grow(to int64) error {
	if len(a.files) == 0 && a.memory.Await(to, maxWait, a.owner.Yield) == nil {
		return nil
	}
	var err error
	a.next, err = a.inFile(int(to) + 1) // the last byte shows that the answer is longer
	return err
}

func (a *Answer) Get(n int) *[]byte {
	if b := a.next; b != nil {
		a.next = nil
		return b
	}
	return buffer.GetSized(n)
}

func (a *Answer) Put(b *[]byte) {
	i := slices.IndexFunc(a.files, func(f file) bool { return f.buffer == b })
	if i < 0 {
		buffer.Put(b)
		if a.files != nil {
			a.memory.Release() // what it held has moved to a file
		}
		return
	}
	a.files[i].unmap()
	a.files = slices.Delete(a.files, i, i+1)
}

// Rewritten returns an empty buffer for an answer of n bytes as it is sent on, with memory for some of them. Memory does
// not count, because the budget leaves room for it. The error is one of the budget.
func (a *Answer) Rewritten(n, some int) (*[]byte, error) {
	if len(a.files) == 0 {
		return buffer.GetSized(some), nil
	}
	return a.inFile(n + maxLonger)
}

// maxLonger is how much longer an answer usually is when it is sent on, at most.
const maxLonger = 4 << 10

// inFile returns an empty buffer of n bytes in a file. A page that the disk cannot provide later is a panic of the
// goroutine instead of the end of the process.
func (a *Answer) inFile(n int) (*[]byte, error) {
	held := n
	for _, f := range a.files {
		held += len(f.memory)
	}

	if err := a.disk.Grow(int64(held)); err != nil {
		return nil, fmt.Errorf("hold answer in a file: %w", err)
	}

	f, err := mapFile(a.dir, n)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", bytebudget.ErrFull, err)
	}
	if faults := debug.SetPanicOnFault(true); a.files == nil {
		a.faults = faults
	}

	a.files = append(a.files, f)
	return f.buffer, nil
}

// Release gives everything back. Nothing of the answer may be used afterwards.
func (a *Answer) Release() {
	if a.files != nil {
		for _, f := range a.files {
			f.unmap()
		}
		debug.SetPanicOnFault(a.faults)
		a.files = nil
	}
	a.disk.Release()
	a.memory.Release()
}
