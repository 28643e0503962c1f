// Package supervise owns the processes of the development stack while it runs:
// it starts them, notices when one ends by itself, and starts it again.
//
// It does not know what the processes are. Invariants: a part that has been
// stopped is not started again, and Stop returns only when its process is gone.
package supervise

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Pauses between restarts. A part that keeps failing is retried forever, ever
// more slowly: whatever it lacks may be another part that is coming back.
const (
	firstPause = 200 * time.Millisecond
	lastPause  = 5 * time.Second
	// soundAfter is how long a process must run for its next end to count as
	// the first.
	soundAfter = 10 * time.Second
)

// A Process is something that runs.
type Process interface {
	// PID returns the process id.
	PID() int
	// Done is closed when the process has ended.
	Done() <-chan struct{}
	// Stop ends the process and returns when it is gone: gracefully, or at once
	// when ctx has ended.
	Stop(ctx context.Context) error
}

// A Part is a place in the stack that one process at a time fills.
type Part struct {
	// Name is unique in the stack.
	Name string
	// Start starts the process and returns when it serves. When it fails, or
	// ctx ends first, nothing of it is left running.
	Start func(ctx context.Context) (Process, error)
}

// An Observer is told what happens. Its functions are called from several
// goroutines.
type Observer struct {
	// Running is told of every start that succeeded.
	Running func(name string, pid int)
	// Say gets messages for people.
	Say func(format string, args ...any)
}

// A Keeper keeps one part running.
type Keeper struct {
	part Part
	to   Observer

	// cancel ends a start that is under way and every later one.
	cancel  context.CancelFunc
	stopped chan struct{}

	mu sync.Mutex
	// stopCtx bounds the graceful end of the process; set by Stop.
	stopCtx context.Context
	stopErr error
}

// Keep starts the part and keeps it running until Stop. When the first start
// fails, it returns that error and keeps nothing. The values of ctx and its
// end reach the first start only.
func Keep(ctx context.Context, part Part, to Observer) (*Keeper, error) {
	process, err := part.Start(ctx)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", part.Name, err)
	}
	to.Running(part.Name, process.PID())
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	k := &Keeper{part: part, to: to, cancel: cancel, stopped: make(chan struct{})}
	go k.run(running, process)
	return k, nil
}

// Stop ends the part for good; see Process.Stop. Only the first call counts,
// later ones wait for it.
func (k *Keeper) Stop(ctx context.Context) error {
	k.mu.Lock()
	if k.stopCtx == nil {
		k.stopCtx = ctx
	}
	k.mu.Unlock()
	k.cancel()
	<-k.stopped
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.stopErr
}

// run watches the process and those that follow it.
func (k *Keeper) run(ctx context.Context, process Process) {
	defer close(k.stopped)
	pause := firstPause
	for process != nil {
		began := time.Now()
		select {
		case <-ctx.Done():
			k.finish(process)
			return
		case <-process.Done():
		}
		if time.Since(began) >= soundAfter {
			pause = firstPause
		}
		k.to.Say("%s (pid %d) ended; starting it again in %v", k.part.Name, process.PID(), pause)
		process, pause = k.restart(ctx, pause)
	}
}

// restart starts the part after a pause, as often as it takes. It returns the
// pause to make the next time, and no process when ctx has ended.
func (k *Keeper) restart(ctx context.Context, pause time.Duration) (Process, time.Duration) {
	for {
		select {
		case <-ctx.Done():
			return nil, pause
		case <-time.After(pause):
		}
		pause = min(2*pause, lastPause)
		process, err := k.part.Start(ctx)
		if err == nil {
			k.to.Running(k.part.Name, process.PID())
			k.to.Say("%s runs again (pid %d)", k.part.Name, process.PID())
			return process, pause
		}
		if ctx.Err() != nil {
			return nil, pause
		}
		k.to.Say("%s does not start, trying again in %v: %v", k.part.Name, pause, err)
	}
}

func (k *Keeper) finish(process Process) {
	k.mu.Lock()
	ctx := k.stopCtx
	k.mu.Unlock()
	err := process.Stop(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stopErr = err
}
