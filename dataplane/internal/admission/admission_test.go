package admission

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"modelgateway/dataplane/internal/auth"
	"modelgateway/dataplane/internal/session"
	"modelgateway/shared/event"
	"modelgateway/shared/lease/checkpoint"
	"modelgateway/shared/money"
	"modelgateway/shared/wire"
)

// drained checks that no units are outstanding.
func drained(t *testing.T, p *plane) {
	t.Helper()
	for id := range p.allocator.Pools {
		if held := p.held(id); held != 0 {
			t.Errorf("pool %d: %d units outstanding while no request runs; want 0", id, held)
		}
	}
}

// The balance is enough for 37 of 100 requests. The number of proxies does not matter.
func TestConcurrentRequestsSpendTheBalanceExactly(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		proxies int
		slow    time.Duration
	}{
		{"one proxy", 1, 0},
		{"four proxies", 4, time.Millisecond},
		{"four slow proxies", 4, 30 * time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				cp := newPlane(t, 370, 1<<40, 1000)
				var proxies []*proxy
				for i := range tt.proxies {
					p := newProxy(t, cp, wire.SessionID(i+1))
					p.line.slow = tt.slow
					proxies = append(proxies, p)
				}
				var wg sync.WaitGroup
				var admitted, refused atomic.Int64
				reservations := make(chan *Reservation, 100)
				for i := range 100 {
					wg.Go(func() {
						h, err := proxies[i%tt.proxies].Acquire(t.Context(), request(10))
						var refusal *RefusedError
						switch {
						case err == nil:
							admitted.Add(1)
							reservations <- h
						case errors.As(err, &refusal) && refusal.Reason == wire.BalanceReserved:
							refused.Add(1)
						default:
							t.Errorf("got %v; want a refusal because of the balance", err)
						}
					})
				}
				wg.Wait()
				if admitted.Load() != 37 || refused.Load() != 63 {
					t.Errorf("%d admitted and %d refused; want 37 and 63", admitted.Load(), refused.Load())
				}
				close(reservations)
				for h := range reservations {
					h.Release()
				}
				for _, p := range proxies {
					p.stop(t)
				}
				drained(t, cp)
			})
		})
	}
}

// Clients send requests on several proxies with an unreliable connection.
func TestSlotsAndChargesUnderRandomLoad(t *testing.T) {
	t.Parallel()
	for seed := range 8 {
		t.Run(fmt.Sprint("run ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { swarm(t, seed%2 == 0) })
		})
	}
}

func swarm(t *testing.T, lossy bool) {
	t.Helper()
	const slots = 5
	cp := newPlane(t, 100_000, 100_000, slots)
	proxies := make([]*proxy, 3)
	for i := range proxies {
		proxies[i] = newProxy(t, cp, wire.SessionID(i+1))
		proxies[i].line.slow = 20 * time.Millisecond
		proxies[i].line.lossy.Store(lossy)
	}
	var wg sync.WaitGroup
	var running, spent atomic.Int64
	for i := range 120 {
		wg.Go(func() {
			time.Sleep(rand.N(3 * time.Second))
			ctx, cancel := context.WithTimeout(t.Context(), rand.N(4*time.Second)) // some clients cancel while they wait
			defer cancel()
			h, err := proxies[i%3].Acquire(ctx, request(money.Nano(1+rand.IntN(50))))
			var refusal *RefusedError
			if err != nil {
				if !errors.Is(err, ErrUnavailable) && !(errors.As(err, &refusal) && refusal.Reason == wire.NoSlot) {
					t.Errorf("got %v", err)
				}
				return
			}
			if n := running.Add(1); n > slots {
				t.Errorf("%d requests run with %d slots", n, slots)
			}
			time.Sleep(rand.N(200 * time.Millisecond))
			running.Add(-1)
			if rand.IntN(3) == 0 {
				h.Release()
				return
			}
			if err := h.Start(); err != nil {
				t.Error(err)
			}
			cost := money.Nano(rand.IntN(80)) // also above the reserve
			h.charged(cost)
			h.charged(cost + 1)
			h.Release()
			spent.Add(int64(cost))
			cp.charge(wire.SessionID(i%3+1), cost)
		})
	}
	wg.Wait()
	for _, p := range proxies {
		p.line.lossy.Store(false)
		p.stop(t)
	}
	drained(t, cp)
	if got := cp.allocator.Pools[balancePool].Settled; got != spent.Load() {
		t.Errorf("settled %d; want %d", got, spent.Load())
	}
}

func TestRefusalHasReasonAndFreeUnits(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name                  string
		balance, limit, slots int64
		want                  wire.Decision
	}{
		{"balance", 9, 100, 1, wire.Decision{Reason: wire.BalanceInsufficient, Pool: balancePool, Free: 9}},
		{"limit", 9, 9, 1, wire.Decision{Reason: wire.LimitInsufficient, Pool: limitPool, Free: 9}},
		{"slots", 100, 100, 0, wire.Decision{Reason: wire.NoSlot, Pool: slotsPool}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				cp := newPlane(t, tt.balance, tt.limit, tt.slots)
				p := newProxy(t, cp, 1)
				_, err := p.Acquire(t.Context(), request(10))
				var refusal *RefusedError
				if !errors.As(err, &refusal) || errors.Is(err, ErrUnavailable) {
					t.Fatalf("got %v; want a refusal", err)
				}
				if diff := cmp.Diff(tt.want, refusal.Decision); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				p.stop(t)
				drained(t, cp)
			})
		})
	}
}

// A request without a slot, a key limit and a cost needs one unit of the balance.
func TestNeedsOfARequest(t *testing.T) {
	t.Parallel()
	free := request(0)
	free.Slot, free.Key.LimitPool = false, 0
	all := request(7)
	ofKey := request(7)
	ofKey.Key = &auth.Key{KeyRecord: ofKey.Key.KeyRecord}
	ofKey.Key.LimitPool, ofKey.Key.KeySlotsPool = 0, 4
	tests := []struct {
		name    string
		request Request
		want    []wire.Need
	}{
		{"all", all, []wire.Need{{Pool: 1, Kind: wire.Balance, Amount: 7}, {Pool: 2, Kind: wire.Limit, Amount: 7}, {Pool: 3, Kind: wire.Slots, Amount: 1}}},
		{"slots of the key", ofKey, []wire.Need{{Pool: 1, Kind: wire.Balance, Amount: 7}, {Pool: 3, Kind: wire.Slots, Amount: 1}, {Pool: 4, Kind: wire.Slots, Amount: 1}}},
		{"minimum", free, []wire.Need{{Pool: 1, Kind: wire.Balance, Amount: 1}}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, tt.request.AppendNeeds(nil)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// Units that a lost response granted are returned.
func TestNoResponseIsUnavailableAndNotARefusal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cp := newPlane(t, 100, 100, 10)
		p := newProxy(t, cp, 1)
		p.line.silent.Store(true)
		begun := time.Now()
		_, err := p.Acquire(t.Context(), request(10))
		if !errors.Is(err, ErrUnavailable) || time.Since(begun) != p.timing.DecisionTimeout {
			t.Errorf("got %v after %v; want ErrUnavailable after %v", err, time.Since(begun), p.timing.DecisionTimeout)
		}
		p.line.silent.Store(false)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		drained(t, cp)
		if cp.requests == 0 {
			t.Error("the lease request was not repeated, so its grant remains unknown")
		}
		p.mustAcquire(t, 10).charged(0)
		p.stop(t)
	})
}

// The session expires while a lease request has no response, and then a heartbeat
// extends it. The lease request is still repeated, because it may have been granted.
func TestLeaseRequestIsRepeatedAfterALateHeartbeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cp := newPlane(t, 100, 100, 10)
		p := newProxy(t, cp, 1)
		// The lease request arrives, but its response does not.
		p.line.slow = 0
		lost := make(chan struct{})
		asked := request(10)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer close(lost)
			cp.decideRequest(&wire.LeaseRequest{Session: 1, Number: 1, Needs: [][]wire.Need{asked.AppendNeeds(nil)}})
		}()
		<-lost
		p.line.silent.Store(true)
		go func() { time.Sleep(time.Second); cancel() }()
		if _, err := p.Acquire(ctx, request(10)); !errors.Is(err, ErrUnavailable) || !errors.Is(err, context.Canceled) {
			t.Errorf("got %v; want ErrUnavailable with its cause", err)
		}
		time.Sleep(time.Minute)
		p.line.silent.Store(false)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		drained(t, cp)
		p.stop(t)
	})
}

func TestLateGrantIsReturned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cp := newPlane(t, 100, 100, 10)
		p := newProxy(t, cp, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		p.line.slow = 40 * time.Millisecond
		if _, err := p.Acquire(ctx, request(10)); !errors.Is(err, ErrUnavailable) {
			t.Errorf("got %v; want ErrUnavailable", err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		drained(t, cp)
		p.stop(t)
	})
}

func TestResponseAfterTheFirstRepetitionIsAccepted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cp := newPlane(t, 100, 100, 10)
		p := newProxy(t, cp, 1)
		bus := &slowBus{line: p.line, delay: 300 * time.Millisecond}
		p.Admission.bus = bus
		p.mustAcquire(t, 10).charged(1)
		p.stop(t)
	})
}

type slowBus struct {
	*line
	delay time.Duration
}

func (b *slowBus) RequestLease(ctx context.Context, request *wire.LeaseRequest) (*wire.LeaseResponse, error) {
	select {
	case <-time.After(b.delay):
		return b.line.RequestLease(ctx, request)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func TestSessionAndKeyAreCheckedAfterTheWait(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(p *proxy)
		want   error
	}{
		{"revoked", func(p *proxy) { p.keys.revoked.Store(true) }, ErrKey},
		{"changed at each attempt", func(p *proxy) { p.keys.stale.Store(true) }, ErrUnavailable},
		{"changed, and the record cannot be read", func(p *proxy) { p.keys.stale.Store(true); p.keys.silent.Store(true) }, ErrUnavailable},
		{"end of the session", func(*proxy) { time.Sleep(time.Second) }, ErrUnavailable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				cp := newPlane(t, 100, 100, 10)
				p := newProxy(t, cp, 1)
				p.Admission.bus = &hookBus{line: p.line, before: func() { tt.change(p) }}
				time.Sleep(29500 * time.Millisecond) // the session has half a second left
				if _, err := p.Acquire(t.Context(), request(10)); !errors.Is(err, tt.want) {
					t.Errorf("got %v; want %v", err, tt.want)
				}
				p.stop(t)
				drained(t, cp)
			})
		})
	}
}

// The limit of the key is set or removed while its request waits: the request is decided once more, with the pools of
// the new record.
func TestRequestIsDecidedAgainWhenTheKeyRecordChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cp := newPlane(t, 100, 5, 10)
		p := newProxy(t, cp, 1)
		limited := request(1)
		unlimited := *limited.Key
		unlimited.LimitPool = 0
		p.keys.renewed = &unlimited
		p.Admission.bus = &hookBus{line: p.line, before: sync.OnceFunc(func() { p.keys.stale.Store(true) })}
		res, err := p.Acquire(t.Context(), limited)
		if err != nil {
			t.Fatalf("got %v; want a reservation with the new record", err)
		}
		synctest.Wait()
		if limit, balance := cp.held(limitPool), cp.held(balancePool); limit != 0 || balance != 1 {
			t.Errorf("%d of the limit and %d of the balance are reserved; want 0 and 1", limit, balance)
		}
		res.Release()
		synctest.Wait() // until the return is sent

		p.keys.renewed = limited.Key
		limited.ExpectedCost, limited.Key = 10, &unlimited
		p.Admission.bus = &hookBus{line: p.line, before: sync.OnceFunc(func() { p.keys.stale.Store(true) })}
		var refused *RefusedError
		if _, err := p.Acquire(t.Context(), limited); !errors.As(err, &refused) || refused.Reason != wire.LimitInsufficient {
			t.Errorf("got %v; want a refusal by the new limit", err)
		}
		if n := testutil.ToFloat64(p.metrics.refusals.WithLabelValues("limit_insufficient", "key")); n != 1 {
			t.Errorf("%v refusals because of the limit are counted; want one", n)
		}
		p.stop(t)
		drained(t, cp)
	})
}

func TestCheckFindsRevokedKeysAndEndedSessions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newProxy(t, newPlane(t, 100, 100, 10), 1)
		key := request(1).Key
		check := func(name string, want error) {
			t.Helper()
			if err := p.Check(t.Context(), key); !errors.Is(err, want) {
				t.Errorf("%s: got %v; want %v", name, err, want)
			}
		}
		check("valid key", nil)
		p.keys.stale.Store(true)
		check("key whose record changed and is active", nil)
		p.keys.silent.Store(true)
		check("key whose record cannot be read", ErrUnavailable)
		p.keys.silent.Store(false)
		p.keys.revoked.Store(true)
		check("revoked key", ErrKey)
		p.keys.revoked.Store(false)
		p.keys.stale.Store(false)
		time.Sleep(30 * time.Second)
		check("after the end of the session", ErrUnavailable)
		p.current.Store(nil)
		check("without a session", ErrUnavailable)
		p.stop(t)
	})
}

// Requests of several accounts start and end in any order; each account's sum has its own requests only.
func TestHeldHasTheRequestsOfTheAccount(t *testing.T) {
	t.Parallel()
	all := reservations{}
	var running []*Reservation
	amounts := map[string]int64{}
	for i := range 300 {
		if i%3 == 2 { // ends the first, a middle and the last of a list in turn
			at := []int{0, len(running) / 2, len(running) - 1}[i/3%3]
			ended := running[at]
			running = slices.Delete(running, at, at+1)
			all.remove(ended)
			amounts[ended.key.AccountID] -= ended.needs[0].Amount
			continue
		}
		r := request(1)
		r.Key = &auth.Key{KeyRecord: r.Key.KeyRecord}
		r.Key.AccountID = fmt.Sprint("acc_", i%5)
		res := &Reservation{key: r.Key, needs: []wire.Need{{Pool: balancePool, Amount: int64(i)}}}
		all.add(res)
		running = append(running, res)
		amounts[r.Key.AccountID] += int64(i)
		a := &Admission{reservations: all}
		for account, want := range amounts {
			if got := a.Held(account)[balancePool]; got != want {
				t.Fatalf("after %d steps %s holds %d; want %d", i, account, got, want)
			}
		}
		count := 0
		for range all.all() {
			count++
		}
		if count != len(running) {
			t.Fatalf("%d reservations are listed; want %d", count, len(running))
		}
	}
	for _, res := range running {
		all.remove(res)
	}
	if len(all) != 0 {
		t.Errorf("%d accounts are kept without a request", len(all))
	}
}

// hookBus calls before in each RequestLease.
type hookBus struct {
	*line
	before func()
}

func (b *hookBus) RequestLease(ctx context.Context, request *wire.LeaseRequest) (*wire.LeaseResponse, error) {
	b.before()
	return b.line.RequestLease(context.WithoutCancel(ctx), request)
}

// The client cancels at the moment of the decision. Either the request is admitted, or its units
// are returned.
func TestCancellationAtTheDecisionLeavesNoUnits(t *testing.T) {
	t.Parallel()
	for range 30 {
		synctest.Test(t, func(t *testing.T) {
			cp := newPlane(t, 100, 100, 10)
			p := newProxy(t, cp, 1)
			ctx, cancel := context.WithCancel(t.Context())
			p.Admission.bus = &hookBus{line: p.line, before: cancel}
			if h, err := p.Acquire(ctx, request(10)); err == nil {
				h.Release()
			} else if !errors.Is(err, ErrUnavailable) {
				t.Errorf("got %v", err)
			}
			p.stop(t)
			drained(t, cp)
		})
	}
}

func TestNoAdmissionWithoutSpoolCapacityOrValidSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cp := newPlane(t, 100, 100, 10)
		p := newProxy(t, cp, 1)
		full := errors.New("full")
		p.spool.full = full
		if _, err := p.Acquire(t.Context(), request(10)); !errors.Is(err, ErrUnavailable) || !errors.Is(err, full) {
			t.Errorf("with a full spool: got %v", err)
		}
		p.spool.full = nil
		s := p.current.Swap(nil)
		if _, err := p.Acquire(t.Context(), request(10)); !errors.Is(err, ErrUnavailable) {
			t.Errorf("without session: got %v", err)
		}
		p.begin(2)
		p.current.Store(s) // OnSession was called with the next session already
		if _, err := p.Acquire(t.Context(), request(10)); !errors.Is(err, ErrUnavailable) {
			t.Errorf("between sessions: got %v", err)
		}
		time.Sleep(31 * time.Second)
		if _, err := p.Acquire(t.Context(), request(10)); !errors.Is(err, ErrUnavailable) {
			t.Errorf("with an expired session: got %v", err)
		}
		if cp.requests != 0 {
			t.Errorf("%d lease requests were sent; want none", cp.requests)
		}
		p.stop(t)
	})
}

func TestRequestsOfAFencedSessionFinishInIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cp := newPlane(t, 100, 100, 10)
		p := newProxy(t, cp, 1)
		running := p.mustAcquire(t, 10)
		cp.mu.Lock()
		cp.ended[1] = true
		cp.mu.Unlock()
		if _, err := p.Acquire(t.Context(), request(10)); !errors.Is(err, ErrUnavailable) {
			t.Errorf("got %v; want ErrUnavailable", err)
		}
		p.begin(2)
		h := p.mustAcquire(t, 10)
		// Requests that run in the old session finish in it.
		running.charged(4)
		h.charged(6)
		var sessions []int64
		for _, e := range p.spool.events {
			sessions = append(sessions, e.Session)
		}
		if diff := cmp.Diff([]int64{1, 2}, sessions); diff != "" {
			t.Errorf("sessions of the events (-want +got):\n%s", diff)
		}
		p.stop(t)
	})
}

func TestNewSessionAbortsWaitersOfTheOldOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cp := newPlane(t, 100, 100, 10)
		p := newProxy(t, cp, 1)
		p.line.silent.Store(true)
		begun := time.Now()
		time.AfterFunc(100*time.Millisecond, func() { p.begin(2) })
		if _, err := p.Acquire(t.Context(), request(10)); !errors.Is(err, ErrUnavailable) {
			t.Errorf("got %v; want ErrUnavailable", err)
		}
		if waited := time.Since(begun); waited != 100*time.Millisecond {
			t.Errorf("the request waited for %v; want no wait after the session ended", waited)
		}
		p.line.silent.Store(false)
		p.mustAcquire(t, 10).charged(1)
		p.stop(t)
	})
}

// The units are returned at once, because recalls are sent to the next session only, which does
// not hold them.
// The control plane has fenced the session, for example because it could not be reached for a while. The next session of
// the same proxy can use every slot as soon as the requests of the old one have ended.
func TestUnitsOfAnEndedSessionAreReturnedWhenItsRequestsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const slots = 100
		cp := newPlane(t, 1_000_000, 1<<40, slots)
		for id := range cp.allocator.Pools {
			cp.allocator.Pools[id].EnterEscrow()
		}
		p := newProxy(t, cp, 1)
		var running []*Reservation
		for range 60 {
			running = append(running, p.mustAcquire(t, 10))
		}
		cp.fence(1)
		p.begin(2)
		time.Sleep(time.Second)
		if held := cp.held(slotsPool); held != 60 {
			t.Errorf("%d slots are outstanding while 60 requests run; want 60", held)
		}
		for _, h := range running {
			h.charged(0)
		}
		time.Sleep(time.Second)
		drained(t, cp)
		running = running[:0]
		for range slots {
			running = append(running, p.mustAcquire(t, 10))
		}
		for _, h := range running {
			h.charged(0)
		}
		time.Sleep(time.Minute) // idle units are kept for a while
		drained(t, cp)
		p.stop(t)
	})
}

func TestUnitsGrantedAfterTheEndOfTheSessionAreReturned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cp := newPlane(t, 100, 100, 10)
		p := newProxy(t, cp, 1)
		p.line.slow = 40 * time.Millisecond
		time.AfterFunc(time.Millisecond, func() { p.begin(2) })
		if _, err := p.Acquire(t.Context(), request(10)); !errors.Is(err, ErrUnavailable) {
			t.Errorf("got %v; want ErrUnavailable", err)
		}
		time.Sleep(time.Second)
		drained(t, cp)
		p.stop(t)
	})
}

func TestOnlyTheFirstFinishOrReleaseCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cp := newPlane(t, 100, 100, 10)
		p := newProxy(t, cp, 1)
		h := p.mustAcquire(t, 10)
		if got := p.Running(); got != 1 {
			t.Errorf("%d requests run; want 1", got)
		}
		h.charged(4)
		h.Release()
		h.Finish(func(*event.Usage) { t.Error("completed twice") })
		want := []event.Usage{{V: 1, RequestID: "req", Session: 1, Reservation: 10, Cost: 4}}
		if diff := cmp.Diff(want, p.spool.events); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		synctest.Wait()
		if held := cp.held(balancePool); held != 4 {
			t.Errorf("%d units outstanding; want the cost until it is settled", held)
		}
		cp.charge(1, 4)
		other, err := p.Acquire(t.Context(), request(10))
		if err != nil {
			t.Fatal(err)
		}
		p.spool.refuseStart = errors.New("disk")
		if err := other.Start(); !errors.Is(err, ErrUnavailable) {
			t.Errorf("start: got %v; want ErrUnavailable", err)
		}
		other.Release()
		other.Release()
		p.stop(t)
		drained(t, cp)
	})
}

func TestRevocationStopsRunningRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cp := newPlane(t, 100, 100, 10)
		p := newProxy(t, cp, 1)
		streaming, waiting, finished := p.mustAcquire(t, 1), p.mustAcquire(t, 1), p.mustAcquire(t, 1)
		stops := 0
		streaming.OnRevoke(func() { stops++ })
		finished.OnRevoke(func() { t.Error("a finished request was stopped") })
		finished.charged(1)
		var none wire.KeyChange
		p.OnChange(wire.KeyChange{Kind: wire.KeyUpdated, KeyHash: none.KeyHash})
		p.OnChange(wire.KeyChange{Kind: wire.KeyRevoked, KeyHash: [32]byte{1}})
		p.OnChange(wire.KeyChange{Kind: wire.AccountUpdated, Account: "acc_2"})
		p.OnChange(wire.KeyChange{Kind: wire.AccountUpdated, Account: account}) // has no effect: the key is valid
		synctest.Wait()
		if stops != 0 || streaming.Revoked() {
			t.Error("the request was stopped although its key is valid")
		}
		p.OnChange(wire.KeyChange{Kind: wire.KeyRevoked, KeyHash: none.KeyHash})
		p.OnChange(wire.KeyChange{Kind: wire.KeyRevoked, KeyHash: none.KeyHash})
		if stops != 1 || !streaming.Revoked() || !waiting.Revoked() {
			t.Errorf("stopped %d times; want once", stops)
		}
		waiting.OnRevoke(func() { stops++ }) // it begins to stream only now
		if stops != 2 {
			t.Error("the request was not stopped at once")
		}
		streaming.charged(1)
		waiting.charged(1)
		p.stop(t)
	})
}

func TestSuspensionStopsRunningRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newProxy(t, newPlane(t, 100, 100, 10), 1)
		h := p.mustAcquire(t, 1)
		cut := make(chan struct{})
		h.OnRevoke(func() { close(cut) })
		p.keys.revoked.Store(true)
		p.OnChange(wire.KeyChange{Kind: wire.AccountUpdated, Account: account})
		<-cut
		h.charged(1)
		p.stop(t)
	})
}

// The check of the key fails at first. Requests that have ended in the meantime are not checked
// again, and Stop does not wait for them.
func TestSuspensionStopsRequestsOnceTheKeyIsChecked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newProxy(t, newPlane(t, 100, 100, 10), 1)
		h := p.mustAcquire(t, 1)
		cut := make(chan struct{})
		h.OnRevoke(func() { close(cut) })
		p.keys.revoked.Store(true)
		p.keys.silent.Store(true)
		p.OnChange(wire.KeyChange{Kind: wire.AccountUpdated, Account: account})
		time.Sleep(10 * recheckInterval)
		if h.Revoked() {
			t.Error("the request was stopped although the check of its key failed")
		}
		p.keys.silent.Store(false)
		<-cut
		h.charged(1)

		p.keys.revoked.Store(false)
		ended := p.mustAcquire(t, 1)
		p.keys.silent.Store(true)
		p.OnChange(wire.KeyChange{Kind: wire.AccountUpdated, Account: account})
		synctest.Wait()
		ended.charged(1)
		begun := time.Now()
		p.stop(t)
		if took := time.Since(begun); took > recheckInterval {
			t.Errorf("Stop took %v", took)
		}
	})
}

// A proxy without a session receives no key changes.
func TestNewSessionStopsRequestsOfKeysRevokedMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newProxy(t, newPlane(t, 100, 100, 10), 1)
		h := p.mustAcquire(t, 1)
		stops := 0
		h.OnRevoke(func() { stops++ })
		p.begin(2)
		synctest.Wait()
		if stops != 0 {
			t.Error("the request was stopped although its key is valid")
		}
		p.keys.revoked.Store(true)
		p.begin(3)
		synctest.Wait()
		if stops != 1 {
			t.Errorf("stopped %d times; want once", stops)
		}
		h.charged(1)
		p.stop(t)
	})
}

func TestStopWaitsForReturnsUntilItsDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cp := newPlane(t, 100, 100, 10)
		p := newProxy(t, cp, 1)
		h := p.mustAcquire(t, 10)
		p.line.silent.Store(true)
		h.charged(0)
		time.AfterFunc(time.Second, func() { p.line.silent.Store(false) })
		p.stop(t)
		drained(t, cp)

		p = newProxy(t, cp, 2)
		h = p.mustAcquire(t, 10)
		late := p.mustAcquire(t, 10)
		p.line.silent.Store(true)
		h.charged(0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		p.Stop(ctx)
		if took := time.Since(begun); took != time.Second {
			t.Errorf("Stop took %v", took)
		}
		late.charged(0) // after the drain
		p.OnChange(wire.KeyChange{Kind: wire.AccountUpdated, Account: account})
	})
}

// A lease request is pending at the control plane because there is no slot. When another request
// of the same proxy ends, its slot is returned and granted.
func TestReturnServesAPendingRequestOfTheSameProxy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cp := newPlane(t, 100, 100, 1)
		p := newProxy(t, cp, 1)
		first := p.mustAcquire(t, 1)
		time.AfterFunc(20*time.Millisecond, func() { first.charged(0) })
		second, err := p.Acquire(t.Context(), request(1))
		if err != nil {
			t.Fatalf("got %v; want a grant of the returned slot", err)
		}
		second.Release()
		p.stop(t)
		drained(t, cp)
	})
}

// late is a control plane whose responses take longer than the time between repetitions.
type late struct {
	*line
	takes time.Duration
	asked atomic.Int64
}

func (l *late) RequestLease(ctx context.Context, request *wire.LeaseRequest) (*wire.LeaseResponse, error) {
	if err := l.wait(ctx); err != nil {
		return nil, err
	}
	return l.line.RequestLease(ctx, request)
}

func (l *late) Return(ctx context.Context, r *wire.Return) (*wire.ReturnResponse, error) {
	if err := l.wait(ctx); err != nil {
		return nil, err
	}
	return l.line.Return(ctx, r)
}

func (l *late) wait(ctx context.Context) error {
	l.asked.Add(1)
	select {
	case <-time.After(l.takes):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Without this, repetitions would overload a slow control plane further.
func TestLateResponseEndsTheRepetitions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newProxy(t, newPlane(t, 1000, 1000, 10), 1)
		slow := &late{line: p.line, takes: 3 * time.Second}
		p.bus = slow
		if _, err := p.Acquire(t.Context(), request(10)); !errors.Is(err, ErrUnavailable) {
			t.Errorf("got %v; want %v", err, ErrUnavailable)
		}
		time.Sleep(5 * time.Second)
		asked := slow.asked.Load()
		time.Sleep(5 * time.Second)
		if again := slow.asked.Load() - asked; again != 0 {
			t.Errorf("lease request and return were repeated %d times after their responses; want 0", again)
		}
		if held := p.line.plane.held(balancePool); held != 0 {
			t.Errorf("%d units are outstanding for a cancelled request; want 0", held)
		}
		synctest.Wait()
		slow.takes = 0
		p.mustAcquire(t, 10).charged(10)
		p.stop(t)
	})
}

// So a slow control plane does not receive each message several times.
func TestRepetitionIntervalFollowsTheResponseTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newProxy(t, newPlane(t, 1000, 1000, 10), 1)
		slow := &late{line: p.line, takes: 300 * time.Millisecond}
		p.bus = slow
		each := func() int64 {
			before := slow.asked.Load()
			p.mustAcquire(t, 1).charged(1)
			time.Sleep(2 * p.timing.ReturnRetry) // the return is answered too
			return slow.asked.Load() - before
		}
		first := each()
		for range 10 {
			each()
		}
		if last := each(); last != 2 || first <= last {
			t.Errorf("a request took %d messages; want 2, a lease request and a return, instead of the %d at first", last, first)
		}
		synctest.Wait()
		slow.takes = 0
		for range 30 {
			each()
		}
		retry := p.timing.RequestRetry
		if got := p.responseTime.RetryAfter(retry, time.Second); got != retry {
			t.Errorf("the interval after quick responses is %s; want %s", got, retry)
		}
		p.stop(t)
	})
}

// A proxy serves very many accounts in a session, most of them rarely.
func TestQueuesOfUnusedAccountsAreDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		plane := newPlane(t, 1000, 1000, 10)
		p := newProxy(t, plane, 1)
		p.timing.IdleTimeout, p.timing.ForgetInterval = time.Second, time.Second
		queues := func() int {
			p.mu.Lock()
			defer p.mu.Unlock()
			return len(p.queues)
		}
		for range 3 {
			p.mustAcquire(t, 10).charged(4)
			time.Sleep(4 * p.timing.IdleTimeout)
			if n := queues(); n != 1 {
				t.Fatalf("%d queues are left before the charge is settled; want 1", n)
			}
			plane.charge(1, 4)
			time.Sleep(4 * p.timing.IdleTimeout)
			if n := queues(); n != 0 {
				t.Fatalf("%d queues of an unused account are left; want none", n)
			}
		}
		if held := plane.held(balancePool); held != 0 {
			t.Errorf("%d units are outstanding at rest", held)
		}
		p.stop(t)
	})
}

// undecidedBus answers that nothing can be decided, as a control plane does without Postgres.
type undecidedBus struct{}

func (undecidedBus) RequestLease(_ context.Context, r *wire.LeaseRequest) (*wire.LeaseResponse, error) {
	return &wire.LeaseResponse{Number: r.Number, Status: wire.Unavailable}, nil
}

func (undecidedBus) Return(context.Context, *wire.Return) (*wire.ReturnResponse, error) {
	return &wire.ReturnResponse{Status: wire.Unavailable}, nil
}

// actions counts the messages that a proxy acts on.
type actions struct {
	*proxy
	n atomic.Int64
}

func (a *actions) Act(do func()) { a.n.Add(1); do() }

func TestResponseWithoutADecisionIsNotActedOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newProxy(t, newPlane(t, 1000, 1000, 10), 1)
		acted := &actions{proxy: p}
		p.sessions, p.bus = acted, undecidedBus{}
		if _, err := p.Acquire(t.Context(), request(10)); !errors.Is(err, ErrUnavailable) {
			t.Errorf("got %v; want %v", err, ErrUnavailable)
		}
		if n := acted.n.Load(); n != 0 {
			t.Errorf("%d responses were acted on; want none: a later process may need what the checkpoint says", n)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		p.Stop(ended)
	})
}

// A continued session returns nothing, so units that a change may have reduced are left out.
func TestContinuedSessionDropsUnitsThatAChangeMayHaveReduced(t *testing.T) {
	t.Parallel()
	for name, used := range map[string]bool{"of an account in use": true, "of an account without a request so far": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxy(t, newPlane(t, 1000, 1000, 10), 1)
			s := session.Begin(2, "boot", 30*time.Second)
			p.OnResume(s, map[string][]checkpoint.IdleUnits{account: {{Pool: balancePool, Units: 500}, {Pool: limitPool, Units: 500}, {Pool: slotsPool, Units: 5, Slots: true}}})
			p.current.Store(s)
			if used {
				p.mustAcquire(t, 10).charged(10)
			}
			p.OnChange(wire.KeyChange{Kind: wire.KeyRevoked, Account: account})
			if units := p.IdleUnits()[account]; len(units) != 3 {
				t.Fatalf("idle units %+v; want those of three pools", units)
			}
			p.OnChange(wire.KeyChange{Kind: wire.AccountUpdated, Account: account})
			if units := p.IdleUnits()[account]; len(units) != 0 {
				t.Errorf("the next process gets %+v; want nothing", units)
			}
			if _, err := p.Acquire(t.Context(), request(10)); !errors.Is(err, ErrUnavailable) {
				t.Errorf("got %v; want %v", err, ErrUnavailable)
			}
			p.stop(t)
		})
	}
}

// While the control plane is silent, a request of a key with a spend limit waits
// for it. The other keys of the account continue with the idle units.
func TestLimitedKeyDoesNotStopItsAccountInAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		plane := newPlane(t, 1_000_000, 1_000_000, 1000)
		for _, pool := range []wire.PoolID{balancePool, slotsPool} {
			plane.allocator.Pools[pool].EnterEscrow()
		}
		p := newProxy(t, plane, 1)
		unlimited := request(10)
		unlimited.Key.LimitPool = 0
		finish := func(limited bool) error {
			r := unlimited
			if limited {
				r = request(10)
			}
			res, err := p.Acquire(t.Context(), r)
			if err != nil {
				return err
			}
			res.Release()
			return nil
		}
		if err := finish(false); err != nil {
			t.Fatal(err)
		}
		p.line.silent.Store(true)
		limited := make(chan error)
		go func() { limited <- finish(true) }()
		synctest.Wait()
		for range 100 {
			if err := finish(false); err != nil {
				t.Fatalf("a covered request of another key: %v", err)
			}
		}
		if err := <-limited; !errors.Is(err, ErrUnavailable) {
			t.Errorf("the limited key got %v; want %v", err, ErrUnavailable)
		}
		p.line.silent.Store(false)
		if err := finish(true); err != nil {
			t.Errorf("the limited key after the outage: %v", err)
		}
		p.stop(t)
	})
}

// A limit with room is served from idle units, until a change may have lowered it: then none are left at the proxy.
func TestIdleUnitsOfALimitAreReturnedWhenItMayBeLower(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		plane := newPlane(t, 1_000_000, 1_000_000, 1000)
		for _, pool := range plane.allocator.Pools {
			pool.EnterEscrow()
		}
		p := newProxy(t, plane, 1)
		p.mustAcquire(t, 10).charged(0)
		p.line.silent.Store(true)
		p.mustAcquire(t, 10).charged(0)
		p.line.silent.Store(false)
		if plane.held(limitPool) == 0 {
			t.Error("the proxy holds no units of the limit")
		}
		p.OnChange(wire.KeyChange{Kind: wire.KeyUpdated, Account: "acc_2"})
		synctest.Wait()
		p.OnChange(wire.KeyChange{Kind: wire.KeysAdded, Account: account})
		synctest.Wait()
		if plane.held(limitPool) == 0 {
			t.Error("a change that reduces nothing of the account took the units")
		}
		limit := int64(100)
		plane.mu.Lock()
		plane.allocator.Pools[limitPool].SetLimit(&limit)
		plane.mu.Unlock()
		p.OnChange(wire.KeyChange{Kind: wire.KeyUpdated, Account: account})
		time.Sleep(time.Second)
		if held := plane.held(limitPool); held != 0 {
			t.Errorf("%d units of the lowered limit are outstanding; want none", held)
		}
		if res, err := p.Acquire(t.Context(), request(101)); err == nil {
			res.Release()
			t.Error("a request beyond the lowered limit is admitted")
		}
		p.mustAcquire(t, 100).charged(0)
		p.stop(t)
	})
}

// deserted is a bus without a control plane. It counts the messages.
type deserted struct {
	*line
	gone atomic.Bool
}

func (d *deserted) RequestLease(ctx context.Context, request *wire.LeaseRequest) (*wire.LeaseResponse, error) {
	if d.gone.Load() {
		return nil, ErrNoControlPlane
	}
	return d.line.RequestLease(ctx, request)
}

// A control plane that restarts is waited for. One that has been away for longer
// is not: clients get their 503 at once.
func TestNoDecisionIsAwaitedWithoutAControlPlane(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newProxy(t, newPlane(t, 1000, 1000, 10), 1)
		nobody := &deserted{line: p.line}
		p.bus = nobody
		acquire := func() (time.Duration, error) {
			begun := time.Now()
			res, err := p.Acquire(t.Context(), request(10))
			if err == nil {
				res.Release()
			}
			return time.Since(begun), err
		}
		nobody.gone.Store(true)
		time.AfterFunc(time.Second, func() { nobody.gone.Store(false) })
		if _, err := acquire(); err != nil {
			t.Fatalf("a control plane that is back after a second: %v", err)
		}
		nobody.gone.Store(true)
		if took, err := acquire(); !errors.Is(err, ErrUnavailable) || took < p.timing.DecisionTimeout/2 {
			t.Errorf("the first request got %v after %s; want it to wait for a decision", err, took)
		}
		time.Sleep(p.timing.DecisionTimeout)
		for range 3 {
			if took, err := acquire(); !errors.Is(err, ErrUnavailable) || took > 0 {
				t.Errorf("a later request got %v after %s; want %v at once", err, took, ErrUnavailable)
			}
		}
		nobody.gone.Store(false)
		time.Sleep(2 * p.timing.MaxRetry)
		if _, err := acquire(); err != nil {
			t.Errorf("the control plane is back: %v", err)
		}
		p.stop(t)
	})
}
