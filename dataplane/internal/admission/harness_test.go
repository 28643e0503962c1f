package admission

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/dataplane/internal/auth"
	"modelgateway/dataplane/internal/session"
	"modelgateway/shared/event"
	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/money"
	"modelgateway/shared/price"
	"modelgateway/shared/wire"
)

const account = "acc_1"

var errLost = errors.New("no reply")

// The pools of the account and of its one key.
const (
	balancePool wire.PoolID = 1
	limitPool   wire.PoolID = 2
	slotsPool   wire.PoolID = 3
)

// plane is a control plane: an allocator.Allocator with a lock, the response to the last lease
// request of each session, and the ended sessions.
type plane struct {
	t         *testing.T
	mu        sync.Mutex
	allocator *allocator.Allocator
	last      map[wire.SessionID]wire.LeaseResponse
	// fenced sessions can only repeat a request and return units, ended ones cannot even do that.
	fenced   map[wire.SessionID]bool
	ended    map[wire.SessionID]bool
	requests int
	returned chan struct{} // closed and replaced at every return
	// proxies get the recalls.
	proxies map[wire.SessionID]*proxy
}

func newPlane(t *testing.T, balance, limit, slots int64) *plane {
	t.Helper()
	p := &plane{
		t: t, allocator: allocator.New(), last: map[wire.SessionID]wire.LeaseResponse{}, fenced: map[wire.SessionID]bool{}, ended: map[wire.SessionID]bool{},
		returned: make(chan struct{}), proxies: map[wire.SessionID]*proxy{},
	}
	for kind, total := range map[wire.PoolKind]int64{wire.Balance: balance, wire.Limit: limit, wire.Slots: slots} {
		id := wire.PoolID(kind)
		p.allocator.Pools[id] = &allocator.Pool{ID: id, Kind: kind, Central: true, Generation: 1, Total: total, Free: total}
	}
	return p
}

// decideRequest decides a lease request as a replica does. A refusal that returns could prevent is delayed
// for the grace period, and for recalls.
func (p *plane) decideRequest(request *wire.LeaseRequest) wire.LeaseResponse {
	pending, until := allocator.PendingRequest{}, time.Now().Add(50*time.Millisecond)
	for recalling := false; ; {
		p.mu.Lock()
		pending.MayWait = time.Now().Before(until)
		pending.ResendRecall = !pending.MayWait
		reply, decided := p.decide(request, &pending)
		returned := p.returned
		p.recall()
		p.mu.Unlock()
		if decided {
			return reply
		}
		if waits := reply.Status == wire.Wait; waits != recalling {
			recalling, until = waits, time.Now().Add(250*time.Millisecond)
		}
		look := time.NewTimer(time.Until(until))
		select {
		case <-returned:
		case <-look.C:
		}
		look.Stop()
	}
}

// recall sends the recalls of a decision to the proxies, in goroutines.
func (p *plane) recall() {
	for session, recalls := range p.allocator.ToRecall() {
		to := p.proxies[session]
		for _, r := range recalls {
			go func() {
				if to.line.trip(p.t.Context()) == nil {
					to.OnRecall(r)
				}
			}()
		}
	}
	clear(p.allocator.Recalls)
}

func (p *plane) decide(request *wire.LeaseRequest, pending *allocator.PendingRequest) (wire.LeaseResponse, bool) {
	p.requests++
	last := p.last[request.Session]
	switch {
	case !p.ended[request.Session] && request.Number <= last.Number:
		return last, true
	case p.fenced[request.Session] || p.ended[request.Session]:
		return wire.LeaseResponse{Number: request.Number, Status: wire.Fenced}, true
	}
	reply, decided := p.allocator.Decide(request, pending)
	if decided && reply.Status == wire.Done {
		p.last[request.Session] = reply
	}
	p.check()
	return reply, decided
}

func (p *plane) applyReturn(r *wire.Return) wire.ReturnResponse {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.allocator.ApplyReports(r.Session, r.Reports)
	p.check()
	close(p.returned)
	p.returned = make(chan struct{})
	if p.ended[r.Session] {
		return wire.ReturnResponse{Status: wire.Fenced}
	}
	return wire.ReturnResponse{Status: wire.Done, Settled: p.allocator.Settled(r.Session, r.Reports)}
}

// fence ends a session that holds units.
func (p *plane) fence(s wire.SessionID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fenced[s] = true
}

// check checks invariant I1 for every pool: total = free + outstanding + settled.
func (p *plane) check() {
	for id, pool := range p.allocator.Pools {
		held := int64(0)
		for key, l := range p.allocator.Leases {
			if key.Pool == id {
				held += l.Outstanding()
			}
		}
		if pool.Total != pool.Free+held+pool.Settled || pool.Free < 0 {
			p.t.Errorf("pool %d: total %d, free %d, outstanding %d, settled %d", id, pool.Total, pool.Free, held, pool.Settled)
		}
	}
}

func (p *plane) held(id wire.PoolID) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.allocator.Pools[id].Outstanding()
}

// charge settles a cost in the balance and the key limit.
func (p *plane) charge(s wire.SessionID, cost money.Nano) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.allocator.Charge(s, p.ended[s], balancePool, int64(cost))
	p.allocator.Charge(s, p.ended[s], limitPool, int64(cost))
}

// line is one proxy's unreliable connection to the plane.
type line struct {
	plane *plane
	// lossy loses and duplicates messages and responses. slow is the delay in each direction.
	lossy atomic.Bool
	slow  time.Duration
	// silent loses all messages while it is true.
	silent atomic.Bool
}

func (l *line) trip(ctx context.Context) error {
	if l.silent.Load() || (l.lossy.Load() && rand.IntN(4) == 0) {
		<-ctx.Done()
		return errLost
	}
	if l.slow > 0 {
		time.Sleep(rand.N(l.slow))
	}
	return nil
}

// roundTrip delivers a message to the plane and its response to the proxy.
func roundTrip[R any](ctx context.Context, l *line, ask func() R) (*R, error) {
	if err := l.trip(ctx); err != nil {
		return nil, err
	}
	reply := ask()
	if l.lossy.Load() && rand.IntN(4) == 0 {
		ask() // the message is duplicated
	}
	if err := l.trip(ctx); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, errLost // the sender no longer waits
	}
	return &reply, nil
}

func (l *line) RequestLease(ctx context.Context, request *wire.LeaseRequest) (*wire.LeaseResponse, error) {
	return roundTrip(ctx, l, func() wire.LeaseResponse { return l.plane.decideRequest(request) })
}

func (l *line) Return(ctx context.Context, r *wire.Return) (*wire.ReturnResponse, error) {
	return roundTrip(ctx, l, func() wire.ReturnResponse { return l.plane.applyReturn(r) })
}

// fakeSpool counts units of spool capacity.
type fakeSpool struct {
	t                           *testing.T
	full                        error
	mu                          sync.Mutex
	reserved, started, finished int
	events                      []event.Usage
	refuseStart                 error
}

func (s *fakeSpool) Reserve() (SpoolUnit, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.full != nil {
		return nil, s.full
	}
	s.reserved++
	return &fakeSpoolUnit{s: s}, nil
}

type fakeSpoolUnit struct {
	s     *fakeSpool
	state int // 0 reserved, 1 started, 2 done
	cost  money.Nano
}

func (p *fakeSpoolUnit) AppendStarted(*event.Usage) error {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.s.refuseStart != nil {
		return p.s.refuseStart
	}
	if p.state != 0 {
		p.s.t.Errorf("AppendStarted of a unit in state %d", p.state)
	}
	p.state = 1
	p.s.started++
	return nil
}

func (p *fakeSpoolUnit) AppendProgress(_ price.Usage, cost money.Nano) { p.cost = cost }

func (p *fakeSpoolUnit) AppendFinished(e *event.Usage) bool {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.state != 1 {
		p.s.t.Errorf("AppendFinished of a unit in state %d", p.state)
	}
	p.state = 2
	p.s.finished++
	p.s.events = append(p.s.events, *e)
	return true
}

func (p *fakeSpoolUnit) Release() {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.state != 0 {
		p.s.t.Errorf("Release of a unit in state %d", p.state)
	}
	p.state = 2
	p.s.reserved--
}

// left returns the number of units that are neither finished nor released.
func (s *fakeSpool) left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reserved - s.finished
}

// fakeKeys has the state of the only key.
type fakeKeys struct {
	stale, revoked, silent atomic.Bool
	// renewed is the current record of a key whose record is stale.
	renewed *auth.Key
}

func (k *fakeKeys) Valid(*auth.Key) bool { return !k.stale.Load() && !k.revoked.Load() }

func (k *fakeKeys) Renew(_ context.Context, key *auth.Key) (*auth.Key, error) {
	switch {
	case k.silent.Load():
		return nil, auth.ErrUnavailable
	case k.revoked.Load():
		return nil, auth.ErrInvalid
	case k.renewed != nil:
		k.stale.Store(false)
		return k.renewed, nil
	}
	return key, nil
}

// proxy is one Admission with its fakes.
type proxy struct {
	*Admission
	line    *line
	spool   *fakeSpool
	keys    *fakeKeys
	current atomic.Pointer[session.Session]
}

func (p *proxy) Current() *session.Session { return p.current.Load() }

func (*proxy) Act(do func()) { do() }

// begin starts a session of 30 s.
func (p *proxy) begin(id wire.SessionID) *session.Session {
	s := session.Begin(id, "boot", 30*time.Second)
	p.OnSession(s)
	p.current.Store(s)
	p.line.plane.mu.Lock()
	defer p.line.plane.mu.Unlock()
	p.line.plane.proxies[id] = p
	return s
}

func newProxy(t *testing.T, to *plane, id wire.SessionID) *proxy {
	t.Helper()
	p := &proxy{line: &line{plane: to}, spool: &fakeSpool{t: t}, keys: &fakeKeys{}}
	p.Admission = New(p, p.keys, p.spool, p.line, Units{IdleTimeout: 10 * time.Second}, NewMetrics(prometheus.NewRegistry()), slog.New(slog.DiscardHandler))
	p.begin(id)
	return p
}

// stop stops the proxy, and checks that no request runs and no spool capacity is in use.
func (p *proxy) stop(t *testing.T) {
	t.Helper()
	p.Stop(t.Context())
	if n := p.spool.left(); n != 0 {
		t.Errorf("%d units of spool capacity are still in use", n)
	}
	if n := p.Running(); n != 0 {
		t.Errorf("%d requests run", n)
	}
}

func request(reserve money.Nano) Request {
	return Request{
		Key: &auth.Key{KeyRecord: wire.KeyRecord{
			KeyID: "key_1", AccountID: account, Active: true, BalancePool: balancePool, LimitPool: limitPool, SlotsPool: slotsPool,
		}},
		ExpectedCost: reserve, Slot: true, Event: event.Usage{V: 1, RequestID: "req"},
	}
}

// mustAcquire admits a request and starts it.
func (p *proxy) mustAcquire(t *testing.T, reserve money.Nano) *Reservation {
	t.Helper()
	h, err := p.Acquire(t.Context(), request(reserve))
	if err == nil {
		err = h.Start()
	}
	if err != nil {
		t.Fatalf("acquire %d: %v", reserve, err)
	}
	return h
}

// charged finishes a reservation with a cost.
func (res *Reservation) charged(cost money.Nano) { res.Finish(func(e *event.Usage) { e.Cost = cost }) }
