// Package pace has the times of a relayed stream: until when its output must begin, so that a slow route costs the client
// little, and after how much silence the client gets a sign of life.
package pace

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"modelgateway/dataplane/internal/provider"
)

// FirstToken ends a call whose output does not begin in time. A nil FirstToken sets no limit.
type FirstToken struct {
	timer *time.Timer
	begun bool
}

// Within returns a context that ends with provider.ErrFirstTokenTimeout after the limit, unless Begin is called before.
// The caller calls end when the call has ended. Zero sets no limit.
func Within(ctx context.Context, limit time.Duration) (_ context.Context, f *FirstToken, end func()) {
	if limit <= 0 {
		return ctx, nil, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	f = &FirstToken{timer: time.AfterFunc(limit, func() { cancel(provider.ErrFirstTokenTimeout) })}
	return ctx, f, func() {
		f.timer.Stop()
		cancel(nil)
	}
}

// Begin says that the output begins. It returns false if it is too late: the call has been ended.
func (f *FirstToken) Begin() bool {
	if f == nil || f.begun {
		return true
	}
	f.begun = f.timer.Stop()
	return f.begun
}

// Waits reports whether the output has not begun, so that another route can still serve the request.
func (f *FirstToken) Waits() bool { return f != nil && !f.begun }

// Silence is how long the client of a stream hears nothing before it gets a sign of life: load balancers and clients take a
// connection for dead after a minute.
const Silence = 15 * time.Second

// Writer serialises the writes to the client of a stream, and sends signs of life while nothing else is written. The zero value
// is ready, and sends none before Begin.
type Writer struct {
	mu    sync.Mutex
	owner Owner
	last  time.Time // of a write
	ended bool
	timer atomic.Pointer[time.Timer]
}

// Owner writes to the client of a stream.
type Owner interface {
	// ShowLife writes a sign of life. It runs in another goroutine while nothing else is written.
	ShowLife()
}

// Lock is called before a write to the client, at the time now, and Unlock after it.
func (w *Writer) Lock(now time.Time) {
	w.mu.Lock()
	w.last = now
}

// Unlock ends a write.
func (w *Writer) Unlock() { w.mu.Unlock() }

// Begin begins the signs of life, once the answer has begun: before that, another status may still be sent.
func (w *Writer) Begin(owner Owner) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.owner = owner
	w.timer.Store(time.AfterFunc(Silence, w.fire))
}

func (w *Writer) fire() {
	timer := w.timer.Load()
	if timer == nil {
		return
	}
	if !w.mu.TryLock() { // a write is running, perhaps to a client that reads nothing
		timer.Reset(Silence)
		return
	}
	defer w.mu.Unlock()
	if w.ended {
		return
	}
	now := time.Now()
	rest := Silence - now.Sub(w.last)
	if rest <= 0 {
		w.owner.ShowLife()
		w.last, rest = now, Silence
	}
	timer.Reset(rest)
}

// End ends the signs of life. None is written afterwards.
func (w *Writer) End() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	if timer := w.timer.Load(); timer != nil {
		timer.Stop()
	}
}
