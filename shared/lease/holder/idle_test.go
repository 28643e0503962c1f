package holder

import (
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/wire"
)

// sparse is an account in escrow mode whose requests come to several proxies. Its messages take no time.
type sparse struct {
	allocator *allocator.Allocator
	queues    []*Queue
	// requests counts client requests, waited those that were not covered; leases and returns count messages.
	requests, waited, leases, returns int
	// covered and held are sums over the seconds: of the proxies that can serve a request without a message, and of the
	// share of the balance that leases hold.
	covered, held, seconds float64
	// away means that the control plane answers no messages; refused counts the client requests that were not covered then.
	away    bool
	refused int
	// windows are the lengths of the windows of the limits that apply to each request.
	windows []time.Duration
	escrow  allocator.EscrowPolicy
}

var sparseNeeds = []wire.Need{{Pool: 1, Kind: wire.Balance, Amount: 1000}, {Pool: 2, Kind: wire.Slots, Amount: 1}}

func newSparse(proxies int, idleTimeout time.Duration) *sparse {
	a := allocator.New()
	a.Live = int64(proxies)
	a.Pools[1] = &allocator.Pool{ID: 1, Kind: wire.Balance, Generation: 2, Total: 100_000_000, Free: 100_000_000}
	a.Pools[2] = &allocator.Pool{ID: 2, Kind: wire.Slots, Generation: 2, Total: 100, Free: 100}
	timing := DefaultTiming(func(time.Duration) time.Duration { return 0 })
	timing.IdleTimeout = idleTimeout
	s := &sparse{allocator: a}
	for i := range proxies {
		s.queues = append(s.queues, NewQueue(NewHolder(wire.SessionID(i+1), "boot", "account"), &timing, &ResponseTime{}))
	}
	return s
}

// run plays some hours with requests at random times, gap apart on average.
func (s *sparse) run(hours int, gap time.Duration) { s.runFor(0, time.Duration(hours)*time.Hour, gap) }

func (s *sparse) runFor(from, until, gap time.Duration) {
	r := rand.New(rand.NewPCG(1, 2))
	next := from
	for now := from; now < until; now += time.Second {
		for now >= next {
			s.request(now, r.IntN(len(s.queues)))
			next += time.Duration(r.ExpFloat64() * float64(gap))
		}
		s.pump(now)
		p := s.allocator.Pools[1]
		s.held += float64(p.Outstanding()) / float64(p.Free+p.Outstanding())
		for _, q := range s.queues {
			if q.holder.covered(sparseNeeds) {
				s.covered++
			}
		}
		s.seconds++
	}
}

// request is one client request that ends at once.
func (s *sparse) request(now time.Duration, proxy int) {
	const cost = 300
	s.requests++
	q := s.queues[proxy]
	needs := s.needs(now)
	w := q.Reserve(now, needs)
	s.useWindows(now, q)
	if !w.Granted() && s.away {
		s.refused++
		q.Cancel(w)
		return
	}
	if !w.Granted() {
		s.waited++
		s.pump(now)
	}
	q.Release(w, cost)
	for _, n := range needs {
		if n.Kind != wire.Slots {
			s.allocator.Charge(wire.SessionID(proxy+1), false, n.Pool, cost)
		}
	}
	s.pump(now)
}

// pump exchanges the messages of all queues until there are no more.
func (s *sparse) pump(now time.Duration) {
	for i, q := range s.queues {
		session := wire.SessionID(i + 1)
		for out := q.Next(now); !s.away && (out.Request != nil || out.Return != nil); out = q.Next(now) {
			if out.Request != nil {
				s.leases++
				response, _ := s.allocator.Decide(out.Request, &allocator.PendingRequest{})
				s.escrow.Apply(s.allocator, s.allocator.Live, out.Request, now)
				q.HandleResponse(now, now, out.Request, &response)
			}
			if out.Return != nil {
				s.returns++
				s.allocator.ApplyReports(session, out.Return.Reports)
				q.HandleReturned(now, now, out.Return, &wire.ReturnResponse{Status: wire.Done, Settled: s.allocator.Settled(session, out.Return.Reports)})
			}
		}
	}
}

// An account with five requests a second at four proxies, before and during an outage of the control plane.
func TestRequestsAreServedForTheOutageTarget(t *testing.T) {
	t.Parallel()
	s := newSparse(4, DefaultTiming(nil).IdleTimeout)
	for _, p := range s.allocator.Pools {
		p.Total, p.Free = p.Total*10, p.Free*10
	}
	const gap = 200 * time.Millisecond
	s.runFor(0, time.Hour, gap)
	asked := s.leases
	if s.waited > 10 || asked > 100 {
		t.Errorf("%d requests waited, with %d lease requests; want them to be topped up before", s.waited, asked)
	}
	s.away = true
	before := s.requests
	s.runFor(time.Hour, time.Hour+DefaultTiming(nil).OutageTarget, gap)
	if s.refused > 0 {
		t.Errorf("%d of %d requests in the outage were not covered", s.refused, s.requests-before)
	}
	s.away = false
	s.runFor(2*time.Hour, 3*time.Hour, gap)
	if s.leases-asked > 100 {
		t.Errorf("%d lease requests after the outage; want few", s.leases-asked)
	}
	t.Logf("%d requests in the hour before, with %d lease requests; %d in the outage; %.1f %% of the balance held", before, asked, s.requests-before, 100*s.held/s.seconds)
}

// A pool that cannot spare the target is not asked for it again and again.
func TestFewTopUpsOfAPoolThatIsNearlyEmpty(t *testing.T) {
	t.Parallel()
	s := newSparse(4, DefaultTiming(nil).IdleTimeout)
	s.runFor(0, 5*time.Hour, 100*time.Millisecond)
	if s.leases > s.requests/100 {
		t.Errorf("%d lease requests for %d requests", s.leases, s.requests)
	}
}

// An account that sends a request to each of four proxies every two minutes on average.
func TestSparseRequestsAreServedFromIdleUnits(t *testing.T) {
	t.Parallel()
	s := newSparse(4, DefaultTiming(nil).IdleTimeout)
	s.run(6, 30*time.Second)
	if s.waited > s.requests/50 || s.leases+s.returns > s.requests/20 {
		t.Errorf("%d of %d requests waited, with %d lease requests and %d returns", s.waited, s.requests, s.leases, s.returns)
	}
	if share := s.held / s.seconds; share > .02 {
		t.Errorf("the proxies hold %.1f %% of the balance", 100*share)
	}
}

// BenchmarkIdleTimeout reports what the idle timeout costs and brings for an account at four proxies, by the average time
// between its requests and the timeout.
func BenchmarkIdleTimeout(b *testing.B) {
	for _, gap := range []time.Duration{5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute} {
		for _, idleTimeout := range []time.Duration{10 * time.Second, time.Minute, 15 * time.Minute} {
			b.Run(gap.String()+"/"+idleTimeout.String(), func(b *testing.B) {
				for b.Loop() {
					s := newSparse(4, idleTimeout)
					s.run(6, gap)
					b.ReportMetric(float64(s.leases)/float64(s.requests), "leases/request")
					b.ReportMetric(float64(s.returns)/float64(s.requests), "returns/request")
					b.ReportMetric(100*s.held/s.seconds, "%held")
					b.ReportMetric(100*s.covered/s.seconds/float64(len(s.queues)), "%covered")
				}
			})
		}
	}
}

// BenchmarkIdleAccount reports the memory of an account that holds idle units.
func BenchmarkIdleAccount(b *testing.B) {
	b.ReportAllocs()
	before := heap()
	kept := make([]*sparse, 0, b.N)
	for range b.N {
		s := newSparse(1, time.Hour)
		s.request(0, 0)
		s.allocator = nil
		kept = append(kept, s)
	}
	b.ReportMetric(float64(heap()-before)/float64(b.N), "kept-B/op")
	runtime.KeepAlive(kept)
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A busy account that has no requests any more keeps nothing after its idle timeout, also if the cost of a request is never
// settled because its event is in quarantine.
func TestIdleUnitsOfAnUnusedAccountAreNotToppedUp(t *testing.T) {
	t.Parallel()
	const idleTimeout = 30 * time.Second
	s := newSparse(1, idleTimeout)
	s.runFor(0, 10*time.Minute, 100*time.Millisecond)
	s.queues[0].Release(s.queues[0].Reserve(10*time.Minute, sparseNeeds), 300)
	for now := 10 * time.Minute; now < 10*time.Minute+2*idleTimeout; now += time.Second {
		s.pump(now)
	}
	asked := s.leases
	for now := 10*time.Minute + 2*idleTimeout; now < time.Hour; now += time.Second {
		s.pump(now)
	}
	if s.leases > asked {
		t.Errorf("%d lease requests after the idle timeout; want none", s.leases-asked)
	}
}
