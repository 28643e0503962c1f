package chaos

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"modelgateway/scripts/e2e/rig"
)

// A balancer chooses among the proxies that are ready, as a load balancer with health checks
// does. It never repeats a request.
type balancer struct {
	r    *rig.Rig
	next atomic.Int64

	mu sync.Mutex
	// ready has the result of the newest check of each proxy. After each change, changed is
	// closed and replaced.
	ready   []bool
	changed chan struct{}
}

// newBalancer starts the checks, which end with the test.
func newBalancer(t *testing.T, r *rig.Rig) *balancer {
	t.Helper()
	b := &balancer{r: r, ready: make([]bool, len(r.Proxies)), changed: make(chan struct{})}
	ctx, stop := context.WithCancel(t.Context())
	var checks sync.WaitGroup
	t.Cleanup(func() { stop(); checks.Wait() })
	for i := range r.Proxies {
		checks.Go(func() {
			for ctx.Err() == nil {
				status, err := r.Ready(ctx, rig.DataPlane(i))
				b.note(i, err == nil && status == http.StatusOK)
				pause(ctx)
			}
		})
	}
	return b
}

func (b *balancer) note(i int, ready bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ready[i] != ready {
		b.ready[i] = ready
		close(b.changed)
		b.changed = make(chan struct{})
	}
}

// pick returns a proxy that is ready, in turn. It waits for one if there is none.
func (b *balancer) pick(ctx context.Context, _ int) int {
	for {
		first := int(b.next.Add(1))
		b.mu.Lock()
		changed := b.changed
		for i := range b.ready {
			if proxy := (first + i) % len(b.ready); b.ready[proxy] {
				b.mu.Unlock()
				return proxy
			}
		}
		b.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return first % len(b.ready)
		}
	}
}

// checkAllAnswered requires that every request got a whole answer, of those that have ended since
// the last call.
func (l *load) checkAllAnswered(t *testing.T, what string) {
	t.Helper()
	l.mu.Lock()
	asked := l.asked[l.checked:]
	l.checked = len(l.asked)
	l.mu.Unlock()
	failed := 0
	for _, q := range asked {
		if !answered(q) {
			if failed++; failed <= 5 {
				t.Errorf("%s: failed: %v", what, q)
			}
		}
	}
	t.Logf("%s: %d requests, %d failed", what, len(asked), failed)
}
