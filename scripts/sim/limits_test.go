package sim

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/lease/holder"
	"modelgateway/shared/limit"
	"modelgateway/shared/wire"
)

// burst is 10,000 requests over the end of a window, at four proxies whose clocks differ by up to two seconds. Its messages take no
// time; requests last up to five seconds.
type burst struct {
	t         *testing.T
	limit     limit.Limit
	series    limit.Series
	allocator *allocator.Allocator
	proxies   []*burstProxy
	// counted has the time of the admission of each request, by the pool of the window in which it counts.
	counted map[wire.PoolID][]int64
	spans   map[wire.PoolID]limit.Span
	moved   int
}

type burstProxy struct {
	offsetMS int64
	windows  limit.Windows
	queue    *holder.Queue
}

func newBurst(t *testing.T, window limit.Window) *burst {
	t.Helper()
	b := &burst{
		t:         t,
		limit:     limit.Limit{ID: 5, Scope: limit.Account, Window: window},
		series:    limit.Series{Window: window, Tolerance: limit.Tolerance},
		allocator: allocator.New(),
		counted:   map[wire.PoolID][]int64{},
		spans:     map[wire.PoolID]limit.Span{},
	}
	b.allocator.Live = 4
	timing := holder.DefaultTiming(func(time.Duration) time.Duration { return 0 })
	for i, offset := range []int64{-2000, -700, 900, 2000} {
		h := holder.NewHolder(wire.SessionID(i+1), "boot", "account")
		b.proxies = append(b.proxies, &burstProxy{offsetMS: offset, queue: holder.NewQueue(h, &timing, &holder.ResponseTime{})})
	}
	return b
}

// exchange decides the messages of a proxy, and makes the windows that they need before.
func (b *burst) exchange(p *burstProxy, nowMS int64) {
	now := time.Duration(nowMS) * time.Millisecond
	for out := p.queue.Next(now); out.Request != nil || out.Return != nil; out = p.queue.Next(now) {
		if out.Return != nil {
			b.allocator.ApplyReports(out.Return.Session, out.Return.Reports)
			p.queue.HandleReturned(now, now, out.Return, &wire.ReturnResponse{
				Status: wire.Done, Settled: b.allocator.Settled(out.Return.Session, out.Return.Reports),
			})
			continue
		}

		b.allocator.Moved = map[wire.PoolID]wire.PoolID{}
		for _, needs := range out.Request.Needs {
			b.open(needs[0].Pool, nowMS)
		}
		response, _ := b.allocator.Decide(out.Request, &allocator.PendingRequest{})
		p.queue.HandleResponse(now, now, out.Request, &response)
		for _, l := range response.Leases {
			p.windows.Learn(int64(l.Pool), l.EndMS)
			p.queue.UseUntil(l.Pool, time.Duration(l.EndMS-p.offsetMS)*time.Millisecond)
		}
	}
}

func (b *burst) open(pool wire.PoolID, nowMS int64) {
	_, number, _ := limit.OfPool(int64(pool))
	right, accepted, err := b.series.Check(number, nowMS)
	if err != nil {
		b.t.Fatal(err)
	}
	if !accepted {
		b.allocator.Moved[pool] = wire.PoolID(limit.Pool(b.limit.ID, right.Number))
		b.moved++
		return
	}
	if b.allocator.Pools[pool] == nil { // in escrow mode, so that proxies also admit by their clocks alone
		b.allocator.Pools[pool] = &allocator.Pool{ID: pool, Kind: wire.Limit, Generation: 2, Total: 1 << 40, Free: 1 << 40, EndMS: right.EndMS}
		b.spans[pool] = right
		if right.Number > b.series.Newest.Number {
			b.series.Newest = right
		}
	}
}

// admit admits a request, and returns its pool and what ends it.
func (b *burst) admit(p *burstProxy, nowMS int64) func() {
	for range 4 {
		span, err := p.windows.Current(&b.limit, nowMS+p.offsetMS)
		if err != nil {
			b.t.Fatal(err)
		}
		pool := wire.PoolID(limit.Pool(b.limit.ID, span.Number))
		w := p.queue.Reserve(time.Duration(nowMS)*time.Millisecond, []wire.Need{{Pool: pool, Kind: wire.Limit, Amount: 1000}})
		b.exchange(p, nowMS)
		if w.Granted() {
			b.counted[pool] = append(b.counted[pool], nowMS)
			return func() {
				p.queue.Release(w, 7)
				b.allocator.Charge(wire.SessionID(slices.Index(b.proxies, p)+1), false, pool, 7)
			}
		}
		p.windows.Move(&b.limit, int64(w.Decision().Pool), nowMS+p.offsetMS)
	}
	b.t.Fatalf("a request at %d finds no window", nowMS)
	return nil
}

// 10,000 requests over the end of a window, by proxies whose clocks differ by two seconds: each counts in one window, which is charged
// with it however late it ends, and which was current within the difference of the clocks.
func TestRequestsOverTheEndOfAWindowCountOnce(t *testing.T) {
	t.Parallel()
	const requests, endMS = 10_000, 90 * 24 * 3_600_000
	for _, window := range []limit.Window{
		{Period: limit.Fixed, LengthSeconds: 3600},
		{Period: limit.Day, TimeZone: "UTC"},
		{Period: limit.FirstUse, LengthSeconds: 3600},
	} {
		t.Run(string(window.Period), func(t *testing.T) {
			t.Parallel()
			b, r := newBurst(t, window), rand.New(rand.NewPCG(3, 5))
			if window.Period == limit.FirstUse { // the window that ends has begun an hour before
				b.admit(b.proxies[1], endMS-3_600_000)()
				b.counted = map[wire.PoolID][]int64{}
			}

			type step struct {
				atMS  int64
				proxy *burstProxy
				end   func()
			}
			var steps []step
			for range requests {
				steps = append(steps, step{atMS: endMS - 15_000 + r.Int64N(30_000), proxy: b.proxies[r.IntN(4)]})
			}
			byTime := func(a, b step) int { return cmp.Compare(a.atMS, b.atMS) }
			slices.SortFunc(steps, byTime)
			var ending []step
			for _, s := range steps {
				slices.SortFunc(ending, byTime)
				for len(ending) > 0 && ending[0].atMS <= s.atMS {
					ending[0].end()
					b.exchange(ending[0].proxy, ending[0].atMS)
					ending = ending[1:]
				}
				ending = append(ending, step{s.atMS + r.Int64N(5000), s.proxy, b.admit(s.proxy, s.atMS)})
			}
			for _, e := range ending {
				e.end()
			}

			total, wrong := 0, int64(0)
			for pool, times := range b.counted {
				total += len(times)
				settled := b.allocator.Pools[pool].Settled
				if window.Period == limit.FirstUse && b.spans[pool].Number == 1 {
					settled -= 7 // of the request that began it
				}
				if settled != int64(7*len(times)) {
					t.Errorf("%+v was charged %d; want %d of %d requests", b.spans[pool], settled, 7*len(times), len(times))
				}
				for _, at := range times {
					wrong = max(wrong, b.spans[pool].StartMS-at, at+1-b.spans[pool].EndMS)
				}
			}
			t.Logf("%d requests in %d windows, %d moved, at most %d ms off", total, len(b.counted), b.moved, wrong)
			if total != requests || len(b.counted) != 2 {
				t.Errorf("%d requests count in %d windows; want %d in 2", total, len(b.counted), requests)
			}
			if wrong > 2000 {
				t.Errorf("a request counts in a window %d ms beside it", wrong)
			}
		})
	}
}
