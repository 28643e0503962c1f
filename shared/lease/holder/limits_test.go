package holder

import (
	"testing"
	"time"

	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/wire"
)

// windowOf returns the pool of the window of a limit that contains a time, and when the window ends. The pool is made with the first
// request, as the control plane does.
func (s *sparse) windowOf(i int, now time.Duration) (pool wire.PoolID, end time.Duration) {
	start := now.Truncate(s.windows[i])
	pool = wire.PoolID(1000*(i+1)) + wire.PoolID(start/s.windows[i])
	if s.allocator.Pools[pool] == nil {
		s.allocator.Pools[pool] = &allocator.Pool{ID: pool, Kind: wire.Limit, Central: true, Generation: 1, Total: 10_000_000_000, Free: 10_000_000_000}
	}
	return pool, start + s.windows[i]
}

// needs returns the needs of a request.
func (s *sparse) needs(now time.Duration) []wire.Need {
	needs := append([]wire.Need{}, sparseNeeds...)
	for i := range s.windows {
		pool, _ := s.windowOf(i, now)
		needs = append(needs, wire.Need{Pool: pool, Kind: wire.Limit, Amount: sparseNeeds[0].Amount})
	}
	return needs
}

// useWindows tells a queue when the windows of a request end, as the responses do.
func (s *sparse) useWindows(now time.Duration, q *Queue) {
	for i := range s.windows {
		q.UseUntil(s.windowOf(i, now))
	}
}

// An account that is far from its limits makes at most 0.02 messages a request, with five limits that apply to each request, of which
// two have the shortest windows there are.
func TestFewMessagesWithFiveLimits(t *testing.T) {
	t.Parallel()
	for _, gap := range []time.Duration{20 * time.Millisecond, 200 * time.Millisecond} {
		s := newSparse(4, DefaultTiming(nil).IdleTimeout)
		for _, p := range s.allocator.Pools {
			p.Total, p.Free = p.Total*100, p.Free*100
		}
		s.escrow.HeadroomPeriod = 5 * time.Second
		s.windows = []time.Duration{time.Hour, time.Hour, 3 * time.Hour, 24 * time.Hour, 31 * 24 * time.Hour}
		s.runFor(0, 4*time.Hour, gap)
		each := float64(s.leases+s.returns) / float64(s.requests)
		t.Logf("a request each %s: %d requests, %d waited, %d lease requests, %d returns: %.4f messages a request", gap, s.requests, s.waited, s.leases, s.returns, each)
		if each > .02 {
			t.Errorf("%.4f messages a request; want at most 0.02", each)
		}
	}
}
