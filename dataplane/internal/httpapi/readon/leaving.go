package readon

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// ReasoningPatience is how long a stream is read on whose model reasons without showing it: what that has cost, only
	// the usage says.
	ReasoningPatience = time.Minute
	// Forever is for providers that charge for the whole stream anyway; their time limits end it.
	Forever = time.Duration(math.MaxInt64)
)

// Owner is a request whose stream may be read on.
type Owner interface {
	// ReleaseSlot frees the slot of the request.
	ReleaseSlot()
	// ReadOn adds the call to those that are read on.
	ReadOn(cancel func()) *Call
}

// Leaving decides what becomes of the call of a stream when its client leaves. It is used for one call after the other.
type Leaving struct {
	owner Owner
	// gone reports whether the client has left.
	gone atomic.Bool

	mu sync.Mutex
	// cancel ends the call; stop, the wait for the end of the connection of the client.
	cancel context.CancelFunc
	stop   func() bool
	// patience is how long the call would be read on if the client left now; zero: not at all.
	patience time.Duration
	left     time.Time
	timer    *time.Timer
	call     *Call
}

// Begin begins with a call for a client, whose context ends when it leaves.
func (l *Leaving) Begin(client context.Context, owner Owner, cancel context.CancelFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owner, l.cancel, l.patience = owner, cancel, 0
	l.stop = context.AfterFunc(client, l.Leave)
}

// Leave is called when the client has left. Its slot is free from then on.
func (l *Leaving) Leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.gone.CompareAndSwap(false, true) || l.stop == nil {
		return
	}
	l.owner.ReleaseSlot()
	l.left = time.Now()
	l.readOn()
}

// Allow sets the patience.
func (l *Leaving) Allow(patience time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.patience == patience {
		return
	}
	l.patience = patience
	if l.gone.Load() {
		l.readOn()
	}
}

// readOn lets the call continue for the patience, all in all for no longer than a model that reasons has. The caller holds
// the lock.
func (l *Leaving) readOn() {
	if l.timer != nil {
		l.timer.Stop()
	}
	if l.patience == 0 {
		l.cancel()
		return
	}
	if l.call == nil {
		l.call = l.owner.ReadOn(l.cancel)
	}
	if l.patience == Forever {
		l.timer = nil
		return
	}
	l.timer = time.AfterFunc(min(l.patience, time.Until(l.left.Add(ReasoningPatience))), l.cancel)
}

// Read counts bytes of the stream that were read without the client.
func (l *Leaving) Read(n int) {
	l.mu.Lock()
	call := l.call
	l.mu.Unlock()
	if call != nil {
		call.Read(n)
	}
}

// End ends the call. It has no effect without one.
func (l *Leaving) End() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stop == nil {
		return
	}
	l.stop()
	l.cancel()
	l.stop = nil
	if l.timer != nil {
		l.timer.Stop()
	}
	if l.call != nil {
		l.call.End()
		l.call = nil
	}
}

// Gone reports whether the client has left.
func (l *Leaving) Gone() bool { return l.gone.Load() }

// CancelFunc returns the function that ends the call that is running, and no later one.
func (l *Leaving) CancelFunc() context.CancelFunc { return l.cancel }
