// Package tail sends operators a line for each finished request that they watch.
//
// While nobody watches, a request pays one atomic load.
package tail

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"modelgateway/shared/pulse"
)

// maxTails bounds the tails that are open at a time. A control plane opens five at most.
const maxTails = 20

// SendFunc sends the lines of one tail to whoever watches it.
type SendFunc func(pulse.Lines)

// Tails has the open tails. It is safe for concurrent use. A nil one is never open.
type Tails struct {
	open atomic.Pointer[Open]

	mu   sync.Mutex
	byID map[string]*tail
}

// Open are the tails that are open at a moment.
type Open struct{ tails []*tail }

// New returns Tails without an open one.
func New() *Tails { return &Tails{byID: map[string]*tail{}} }

// Open returns the open tails, nil if there are none.
func (t *Tails) Open() *Open {
	if t == nil {
		return nil
	}
	return t.open.Load()
}

// Offer adds a line to every tail that selects it.
func (o *Open) Offer(l *pulse.Line) {
	for _, tail := range o.tails {
		if tail.filter.Matches(l) {
			tail.add(l)
		}
	}
}

// tail collects the lines of one watcher.
type tail struct {
	filter pulse.Filter
	id     string
	send   SendFunc
	end    *time.Timer

	mu      sync.Mutex
	lines   []pulse.Line
	dropped int64
	// second is when the current second began, sent the lines that were taken in it.
	second time.Time
	taken  int
	flush  *time.Timer
	closed bool
}

// Follow opens a tail, or renews it. Its lines go to send, in batches.
func (t *Tails) Follow(q pulse.Tail, send SendFunc) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.byID[q.ID]
	switch {
	case q.Closed:
		t.remove(q.ID)
	case known != nil:
		known.end.Reset(pulse.TailEnd)
	case len(t.byID) < maxTails:
		opened := &tail{filter: q.Filter, id: q.ID, send: send}
		opened.end = time.AfterFunc(pulse.TailEnd, func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			if t.byID[q.ID] == opened {
				t.remove(q.ID)
			}
		})
		t.byID[q.ID] = opened
		t.publish()
	}
}

// Close ends all tails.
func (t *Tails) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id := range t.byID {
		t.remove(id)
	}
}

// remove ends a tail. The caller holds the lock.
func (t *Tails) remove(id string) {
	ended := t.byID[id]
	if ended == nil {
		return
	}
	ended.end.Stop()
	delete(t.byID, id)
	t.publish()
	ended.close()
}

// publish makes the open tails known to requests. The caller holds the lock.
func (t *Tails) publish() {
	if len(t.byID) == 0 {
		t.open.Store(nil)
		return
	}
	open := &Open{}
	for _, one := range t.byID {
		open.tails = append(open.tails, one)
	}
	t.open.Store(open)
}

// add takes a line, or counts it as dropped.
func (t *tail) add(l *pulse.Line) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}

	now := time.Now()
	if now.Sub(t.second) >= time.Second {
		t.second, t.taken = now, 0
	}

	if t.taken < pulse.MaxLines {
		t.taken++
		t.lines = append(t.lines, *l)
	} else {
		t.dropped++
	}

	if t.flush == nil {
		t.flush = time.AfterFunc(pulse.TailBatch, t.sendBatch)
	}
}

// maxBatch bounds the lines of one message, so that it is far smaller than NATS allows.
const maxBatch = 50

// sendBatch sends what was collected.
func (t *tail) sendBatch() {
	t.mu.Lock()
	lines, dropped := t.lines, t.dropped
	t.lines, t.dropped, t.flush = nil, 0, nil
	closed := t.closed
	t.mu.Unlock()
	if closed {
		return
	}
	if len(lines) == 0 {
		t.send(pulse.Lines{V: pulse.Version, ID: t.id, Dropped: dropped})
	}

	for part := range slices.Chunk(lines, maxBatch) {
		t.send(pulse.Lines{
			V:       pulse.Version,
			ID:      t.id,
			Dropped: dropped,
			Lines:   part,
		})
		dropped = 0
	}
}

func (t *tail) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	if t.flush != nil {
		t.flush.Stop()
	}
}
