package leasing

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

// fakeStore is a Store of one account in memory: balance pool 1 and slots pool 2.
type fakeStore struct {
	Store // panics if a test calls another method

	mu     sync.Mutex
	state  allocator.Batch
	active []session.ActiveSession
	// fails makes Batch and ActiveSessions fail; slow is how long the first ActiveSessions takes.
	fails error
	slow  time.Duration
	// sizes has the number of messages in each batch.
	sizes []int
	// hold, if not nil, blocks Batch before it decides until hold is closed. A blocked Batch sends to begun.
	hold, begun chan bool
	// repeat makes Batch call decide twice, as a repeated transaction does.
	repeat bool
	// lost makes ActiveSessions return ErrChangeLost, silent makes it return only when its context ends.
	lost, silent bool
}

var errStore = errors.New("store failed")

func newFakeStore(balance, slots int64) *fakeStore {
	m := &fakeStore{state: allocator.Batch{
		Allocator: allocator.New(), Sessions: map[wire.SessionID]*session.Record{}, Results: map[allocator.RequestKey]*allocator.Result{},
	}}
	for id := range wire.SessionID(3) {
		m.state.Sessions[id+1] = &session.Record{ID: id + 1, State: session.Active}
	}
	m.state.Allocator.Pools[1] = &allocator.Pool{ID: 1, Kind: wire.Balance, Account: "acc", Central: true, Generation: 1, Total: balance, Free: balance}
	m.state.Allocator.Pools[2] = &allocator.Pool{ID: 2, Kind: wire.Slots, Account: "acc", Central: true, Generation: 1, Total: slots, Free: slots}
	return m
}

func (m *fakeStore) Batch(ctx context.Context, requests []*wire.LeaseRequest, returns []*wire.Return, decide func(*allocator.Batch)) error {
	if m.hold != nil {
		m.begun <- true
		select {
		case <-m.hold:
		case <-ctx.Done():
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fails != nil || ctx.Err() != nil {
		return errors.Join(m.fails, ctx.Err())
	}
	m.sizes = append(m.sizes, len(requests)+len(returns))
	if m.repeat {
		decide(m.copied())
	}
	state := m.copied()
	decide(state)
	m.state = *state
	return nil
}

// copied returns the state as a transaction reads it.
func (m *fakeStore) copied() *allocator.Batch {
	state := &allocator.Batch{Allocator: allocator.New(), Sessions: m.state.Sessions, Results: maps.Clone(m.state.Results)}
	for id, p := range m.state.Allocator.Pools {
		pool := *p
		state.Allocator.Pools[id] = &pool
	}
	for key, l := range m.state.Allocator.Leases {
		lease := *l
		state.Allocator.Leases[key] = &lease
	}
	return state
}

func (m *fakeStore) ActiveSessions(ctx context.Context, _ wire.KeyChange) ([]session.ActiveSession, error) {
	time.Sleep(m.slow)
	m.slow = 0
	if m.silent {
		<-ctx.Done()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lost {
		return nil, ErrChangeLost
	}
	return m.active, errors.Join(m.fails, ctx.Err())
}

func (m *fakeStore) Sweep(context.Context, time.Duration, time.Duration, bool) (int, error) {
	return 0, nil
}

// newService returns a Service with default settings. The stream of changes takes each change, and then loses it.
func newService(store Store, pusher Pusher) *Service {
	cfg := Config{Changes: &changeStream{}, Append: func(context.Context, wire.KeyChange) error { return nil }}
	return New(cfg, store, pusher, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
}

// sessions is a Pusher whose sessions answer each recall at once: they have no idle
// units, and none of their returns are in transit.
type sessions struct {
	Pusher // panics if a test announces a change
	s      *Service
	store  Store
	// deaf makes the sessions ignore recalls.
	deaf atomic.Bool
}

// newAnsweringService returns a Service whose sessions answer recalls.
func newAnsweringService(store Store) *Service {
	answering := &sessions{store: store}
	answering.s = newService(store, answering)
	return answering.s
}

func (p *sessions) Connected() bool { return true }

func (p *sessions) Recall(session wire.SessionID, r wire.Recall) error {
	if p.deaf.Load() {
		return nil
	}
	m := p.store.(*fakeStore) //nolint:forcetypeassert // there is no other store here
	m.mu.Lock()
	l := m.state.Allocator.Leases[allocator.LeaseKey{Pool: r.Pool, Session: session}]
	report := wire.LeaseReport{Pool: r.Pool, Generation: r.Generation, GrantedSeen: l.Granted, Returned: l.Returned}
	m.mu.Unlock()
	p.s.Return(&wire.Return{V: wire.Version, Session: session, Account: r.Account, Reports: []wire.LeaseReport{report}}, func(wire.ReturnResponse) {})
	return nil
}

// start starts a Service that stops when the test ends.
func start(t *testing.T, store Store) *Service {
	t.Helper()
	s := newAnsweringService(store)
	s.Start(t.Context())
	t.Cleanup(s.Stop)
	return s
}

// responses collects the responses to lease requests and returns.
type responses struct {
	requests chan wire.LeaseResponse
	returns  chan wire.ReturnResponse
}

func newResponses() *responses {
	return &responses{make(chan wire.LeaseResponse, 10_000), make(chan wire.ReturnResponse, 10_000)}
}

func (r *responses) request(o wire.LeaseResponse) { r.requests <- o }
func (r *responses) ret(o wire.ReturnResponse)    { r.returns <- o }
