package admission

import (
	"context"
	"sync"
)

// tasks counts the goroutines of an Admission and the queues that wait for a
// response. While it drains, what runs may start more; after that nothing
// starts.
type tasks struct {
	mu            sync.Mutex
	running, busy int
	over          bool
	// changed is signalled when a count falls.
	changed sync.Cond
}

func (t *tasks) init() { t.changed.L = &t.mu }

// run starts a goroutine, unless none may start any more.
func (t *tasks) run(task func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
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

// setBusy counts a queue that waits for a response, or does so no longer.
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

// drain waits until nothing runs and no queue is busy, or until ctx ends. After
// it nothing starts any more.
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
	t.over = true
}

// wait waits for the goroutines that still run.
func (t *tasks) wait() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.running > 0 {
		t.changed.Wait()
	}
}
