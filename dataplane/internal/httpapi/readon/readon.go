// Package readon bounds the calls of providers that are read on after their client has left, until the provider has
// reported the usage.
package readon

import (
	"slices"
	"sync"
)

// MaxBytes bounds what the calls of a process that are read on have read, in bytes.
const MaxBytes = 64 << 20

// Calls are the calls that are read on. The zero value has none.
type Calls struct {
	mu sync.Mutex
	// running has the calls, the oldest first.
	running []*Call
	bytes   int64
}

// Call is a call that is read on.
type Call struct {
	calls      *Calls
	account    string
	cancelFunc func()
	bytes      int64
}

// Begin adds a call of an account that has a number of slots, zero: any number. The oldest of its calls is cancelled if it
// has more calls than slots. cancel must not block.
func (c *Calls) Begin(account string, slots int64, cancel func()) *Call {
	c.mu.Lock()
	defer c.mu.Unlock()
	added := &Call{calls: c, account: account, cancelFunc: cancel}
	c.running = append(c.running, added)
	n, oldest := int64(0), -1
	for i, call := range c.running {
		if call.account == account {
			if n++; oldest < 0 {
				oldest = i
			}
		}
	}

	if slots > 0 && n > slots {
		c.stop(oldest)
	}

	return added
}

// Read counts bytes that a call has read. The oldest calls are cancelled if all have read too much.
func (c *Call) Read(n int) {
	c.calls.mu.Lock()
	defer c.calls.mu.Unlock()
	if c.calls.index(c) < 0 {
		return // it was cancelled
	}
	c.bytes += int64(n)
	c.calls.bytes += int64(n)
	for c.calls.bytes > MaxBytes {
		c.calls.stop(0)
	}
}

// End removes a call that has ended.
func (c *Call) End() {
	c.calls.mu.Lock()
	defer c.calls.mu.Unlock()
	if i := c.calls.index(c); i >= 0 {
		c.calls.remove(i)
	}
}

// stop cancels a call and removes it.
func (c *Calls) stop(i int) {
	c.running[i].cancelFunc()
	c.remove(i)
}

func (c *Calls) remove(i int) {
	c.bytes -= c.running[i].bytes
	c.running = slices.Delete(c.running, i, i+1)
}

func (c *Calls) index(call *Call) int { return slices.Index(c.running, call) }
