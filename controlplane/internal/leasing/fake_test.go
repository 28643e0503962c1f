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

	"modelgateway/shared/lease"
)

// memory is a Store of one account in memory: balance pool 1 and slots pool 2.
type memory struct {
	Store // for what a test does not use

	mu      sync.Mutex
	state   lease.Docket
	pending []lease.Pending
	// fails makes Batch and Pending fail; slow is how long the first Pending takes.
	fails error
	slow  time.Duration
	// sizes records the batches.
	sizes []int
	// hold, when set, stops Batch before it decides, until it is closed; begun hears of it.
	hold, begun chan bool
	// repeat makes Batch run its closure twice, as a repeated transaction does.
	repeat bool
	// lost: Postgres has lost the change that is announced.
	lost bool
}

var errStore = errors.New("the store fails")

func newMemory(balance, slots int64) *memory {
	m := &memory{state: lease.Docket{
		Book: lease.NewBook(), SinceLoss: time.Hour, Tenures: map[lease.SessionID]*lease.Tenure{}, Results: map[lease.OpKey]*lease.Result{},
	}}
	for id := range lease.SessionID(3) {
		m.state.Tenures[id+1] = &lease.Tenure{ID: id + 1, State: lease.TenureActive}
	}
	m.state.Book.Pools[1] = &lease.Pool{ID: 1, Kind: lease.Balance, Central: true, Gen: 1, Total: balance, Free: balance}
	m.state.Book.Pools[2] = &lease.Pool{ID: 2, Kind: lease.Slots, Central: true, Gen: 1, Total: slots, Free: slots}
	return m
}

func (m *memory) Batch(ctx context.Context, ops []*lease.Op, returns []*lease.Return, decide func(*lease.Docket)) error {
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
	m.sizes = append(m.sizes, len(ops)+len(returns))
	if m.repeat {
		decide(m.copied())
	}
	state := m.copied()
	decide(state)
	m.state = *state
	return nil
}

// copied is the state as a transaction reads it.
func (m *memory) copied() *lease.Docket {
	state := &lease.Docket{SinceLoss: m.state.SinceLoss, Book: lease.NewBook(), Tenures: m.state.Tenures, Results: maps.Clone(m.state.Results)}
	for id, p := range m.state.Book.Pools {
		pool := *p
		state.Book.Pools[id] = &pool
	}
	for key, l := range m.state.Book.Leases {
		held := *l
		state.Book.Leases[key] = &held
	}
	return state
}

func (m *memory) Pending(ctx context.Context, _ int64) ([]lease.Pending, error) {
	time.Sleep(m.slow)
	m.slow = 0
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pending, errors.Join(m.fails, ctx.Err())
}

func (m *memory) Standing(context.Context, lease.Change) (bool, time.Duration, error) {
	return !m.lost, time.Hour, nil
}

func (m *memory) Sweep(context.Context, time.Duration, time.Duration) (int, int, error) {
	return 0, 0, nil
}

// newService returns a Service over the memory, with sessions of 30 s.
func newService(store Store, pusher Pusher) *Service {
	return New(Config{}, store, pusher, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
}

// sessions answer recalls at once: they hold nothing idle, and nothing that
// they had given back is under way.
type sessions struct {
	Pusher // announcements are not made
	s      *Service
	store  Store
	// deaf ones answer nothing.
	deaf atomic.Bool
}

// attentive returns a Service whose sessions answer recalls.
func attentive(store Store) *Service {
	answering := &sessions{store: store}
	answering.s = newService(store, answering)
	return answering.s
}

func (p *sessions) Recall(session lease.SessionID, r lease.Recall) error {
	if p.deaf.Load() {
		return nil
	}
	m := p.store.(*memory) //nolint:forcetypeassert // there is no other store here
	m.mu.Lock()
	l := m.state.Book.Leases[lease.LeaseKey{Pool: r.Pool, Session: session}]
	view := lease.View{Pool: r.Pool, Gen: r.Gen, GSeen: l.G, R: l.R}
	m.mu.Unlock()
	p.s.Return(&lease.Return{V: lease.Version, Session: session, Account: r.Account, Views: []lease.View{view}}, func(lease.ReturnReply) {})
	return nil
}

// start starts a Service for the length of the test.
func start(t *testing.T, store Store) *Service {
	t.Helper()
	s := attentive(store)
	s.Start(t.Context())
	t.Cleanup(s.Stop)
	return s
}

// replies collects what an asker hears.
type replies struct {
	ops     chan lease.OpReply
	returns chan lease.ReturnReply
}

func newReplies() *replies {
	return &replies{make(chan lease.OpReply, 10_000), make(chan lease.ReturnReply, 10_000)}
}

func (r *replies) op(o lease.OpReply)      { r.ops <- o }
func (r *replies) ret(o lease.ReturnReply) { r.returns <- o }
