// Package supervise runs the processes of the dev stack: it starts them and
// restarts those that end by themselves.
//
// Invariants: a stopped part is not started again, and Stop returns after the end of the
// process.
package supervise

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// The backoff between restarts. It has no limit of attempts, because a failing part may
// wait for another one that is restarting.
const (
	minBackoff = 200 * time.Millisecond
	maxBackoff = 5 * time.Second
	// resetAfter is the run time of a process after which the backoff starts again at
	// minBackoff.
	resetAfter = 10 * time.Second
)

// A Process is a running process.
type Process interface {
	// PID returns the process id.
	PID() int
	// Done is closed when the process has ended.
	Done() <-chan struct{}
	// Stop stops the process gracefully, or kills it when ctx has ended, and returns
	// after its end.
	Stop(ctx context.Context) error
}

// A Part is a component of the stack with at most one running process.
type Part struct {
	// Name is unique in the stack.
	Name string
	// Start starts the process and returns when it is ready. After an error, or if ctx
	// ends first, no process is left running.
	Start func(ctx context.Context) (Process, error)
}

// An Observer gets the events of parts. Its functions are called from several goroutines.
type Observer struct {
	// Running is called after every successful start.
	Running func(name string, pid int)
	// Printf prints a message for the user.
	Printf func(format string, args ...any)
}

// A Keeper keeps one part running.
type Keeper struct {
	part     Part
	observer Observer

	// cancel prevents further starts and cancels a running one.
	cancel  context.CancelFunc
	stopped chan struct{}

	mu sync.Mutex
	// stopCtx bounds the graceful stop of the process; set by Stop.
	stopCtx context.Context
	stopErr error
}

// Keep starts the part and keeps it running until Stop. If the first start fails, it
// returns that error and no Keeper. ctx bounds the first start only.
func Keep(ctx context.Context, part Part, observer Observer) (*Keeper, error) {
	process, err := part.Start(ctx)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", part.Name, err)
	}
	observer.Running(part.Name, process.PID())
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	k := &Keeper{
		part:     part,
		observer: observer,
		cancel:   cancel,
		stopped:  make(chan struct{}),
	}
	go k.run(running, process)
	return k, nil
}

// Stop stops the part and its restarts; see Process.Stop. Further calls wait for the first
// one.
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

// run waits for the end of the process and restarts it, until Stop.
func (k *Keeper) run(ctx context.Context, process Process) {
	defer close(k.stopped)
	backoff := minBackoff
	for process != nil {
		began := time.Now()
		select {
		case <-ctx.Done():
			k.finish(process)
			return
		case <-process.Done():
		}
		if time.Since(began) >= resetAfter {
			backoff = minBackoff
		}
		k.observer.Printf("%s (pid %d) ended; restarting it in %v", k.part.Name, process.PID(), backoff)
		process, backoff = k.restart(ctx, backoff)
	}
}

// restart tries to start the part until it succeeds. It returns the next backoff, and no
// process if ctx has ended.
func (k *Keeper) restart(ctx context.Context, backoff time.Duration) (Process, time.Duration) {
	for {
		select {
		case <-ctx.Done():
			return nil, backoff
		case <-time.After(backoff):
		}

		backoff = min(2*backoff, maxBackoff)
		process, err := k.part.Start(ctx)
		if err == nil {
			k.observer.Running(k.part.Name, process.PID())
			k.observer.Printf("%s is running again (pid %d)", k.part.Name, process.PID())
			return process, backoff
		}

		if ctx.Err() != nil {
			return nil, backoff
		}

		k.observer.Printf("the restart of %s failed, retrying in %v: %v", k.part.Name, backoff, err)
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
