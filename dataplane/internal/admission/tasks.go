package admission

import (
	"context"
	"sync"
)

// tasks counts the goroutines of an Admission and the queues that wait for a
// response. While drain waits, running goroutines may start new ones; after that
// none starts.
type tasks struct {
	mu            sync.Mutex
	running, busy int
	stopped       bool
	// changed is signalled when a count decreases.
	changed sync.Cond
}

func (t *tasks) init() { t.changed.L = &t.mu }

// run starts a goroutine, unless drain has ended.
func (t *tasks) run(task func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return
	}
	t.running++
	go func() {
		task()
		t.mu.Lock()
		defer t.mu.Unlock()
		t.running--
		t.changed.Broadcast()
	}()
}

// setBusy records that a queue has begun or stopped waiting for a response.
func (t *tasks) setBusy(busy bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if busy {
		t.busy++
		return
	}
	t.busy--
	t.changed.Broadcast()
}

// drain waits until no goroutine runs and no queue is busy, or until ctx ends.
// After that no goroutine starts.
func (t *tasks) drain(ctx context.Context) {
	defer context.AfterFunc(ctx, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.changed.Broadcast()
	})()
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.running+t.busy > 0 && ctx.Err() == nil {
		t.changed.Wait()
	}
	t.stopped = true
}

// wait waits until no goroutine runs.
func (t *tasks) wait() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.running > 0 {
		t.changed.Wait()
	}
}
