// Package admission owns the decision whether a request may run: its hold on
// the account's balance, the key's spend limit and the account's slots, and
// its place in the spool. It is the only code that holds money while a request
// runs.
//
// A hold is all or nothing and ends in exactly one of two ways: Finish, which
// records the request's event and charges its cost, or Release, for a request
// that was not sent to any provider. A refusal comes from the control plane
// alone; any doubt is ErrUnavailable.
package admission

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"modelgateway/dataplane/internal/auth"
	"modelgateway/dataplane/internal/session"
	"modelgateway/shared/event"
	"modelgateway/shared/lease/holder"
	"modelgateway/shared/money"
	"modelgateway/shared/price"
	"modelgateway/shared/wire"
)

var (
	// ErrUnavailable says that whether the request may run cannot be told now.
	ErrUnavailable = errors.New("admission: cannot tell")
	// ErrKey says that the key was revoked, or its account suspended, while the request waited.
	ErrKey = errors.New("admission: the key is no longer valid")
)

// RefusedError is a refusal of the control plane.
type RefusedError struct{ wire.Decision }

// Error names the reason.
func (e *RefusedError) Error() string { return "admission: refused: " + string(e.Reason) }

// Sessions tells the session to admit under.
type Sessions interface{ Current() *session.Session }

// Keys tells whether a record may still be admitted, and whether one that may
// not has become invalid for good.
type Keys interface {
	Valid(k *auth.Key) bool
	Revoked(ctx context.Context, k *auth.Key) (bool, error)
}

// Spool reserves spool capacity for requests.
type Spool interface{ Reserve() (SpoolUnit, error) }

// SpoolUnit is the unit of spool capacity of one request.
type SpoolUnit interface {
	AppendStarted(e *event.Usage) error
	AppendProgress(u price.Usage, cost money.Nano)
	AppendFinished(e *event.Usage)
	Release()
}

// Bus carries ops and returns.
type Bus interface {
	RequestLease(ctx context.Context, op *wire.LeaseRequest) (*wire.LeaseResponse, error)
	Return(ctx context.Context, r *wire.Return) (*wire.ReturnResponse, error)
}

// Admission admits requests. It is safe for concurrent use.
type Admission struct {
	sessions Sessions
	keys     Keys
	spool    Spool
	bus      Bus
	log      *slog.Logger
	metrics  *Metrics

	running atomic.Int64
	// timing and responseTime are shared by all queues; their times count from started.
	timing       holder.Timing
	responseTime holder.ResponseTime
	started      time.Time
	ctx          context.Context //nolint:containedctx // it is the life of the Admission
	stop         context.CancelFunc
	tasks        tasks

	mu      sync.Mutex
	session *session.Session
	// queues are those of the current session, by account.
	queues map[string]*accountQueue
	// holds are the running requests, to find those that a change concerns.
	holds map[*Hold]struct{}
}

// New returns an Admission for the whole life of the proxy.
func New(sessions Sessions, keys Keys, spool Spool, bus Bus, metrics *Metrics, log *slog.Logger) *Admission {
	a := &Admission{
		sessions: sessions, keys: keys, spool: spool, bus: bus, log: log, metrics: metrics,
		timing: holder.DefaultTiming(rand.N[time.Duration]), started: time.Now(),
		queues: map[string]*accountQueue{}, holds: map[*Hold]struct{}{},
	}
	a.ctx, a.stop = context.WithCancel(context.Background())
	a.tasks.init()
	return a
}

// elapsed is the clock of the queues.
func (a *Admission) elapsed() time.Duration { return time.Since(a.started) }

// Held is what the running requests of an account hold, by pool: in every
// session, and nothing that is idle.
func (a *Admission) Held(account string) map[wire.PoolID]int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	held := map[wire.PoolID]int64{}
	for h := range a.holds {
		if h.key.AccountID != account {
			continue
		}
		for _, n := range h.needs {
			held[n.Pool] += n.Amount
		}
	}
	return held
}

// Running is the number of requests that are admitted and not finished.
func (a *Admission) Running() int64 { return a.running.Load() }

// OnSession begins a new session: who waits in an older one is sent away, and
// who runs finishes under it. Of what was revoked between the two no change
// comes any more, so the keys of what runs are read again.
func (a *Admission) OnSession(s *session.Session) {
	a.mu.Lock()
	old := a.queues
	a.session, a.queues = s, map[string]*accountQueue{}
	for h := range a.holds {
		a.tasks.run(func() { a.revokeDead(h) })
	}
	a.mu.Unlock()
	for _, q := range old {
		q.do((*holder.Queue).EndSession)
	}
}

// Stop sends what is still to be returned, until ctx ends, and stops. What is
// finished after it is not returned: the end of the session gives it back.
func (a *Admission) Stop(ctx context.Context) {
	a.tasks.drain(ctx)
	a.stop()
	a.tasks.wait()
}

// OnRecall takes a recall of the current session.
func (a *Admission) OnRecall(r wire.Recall) {
	a.mu.Lock()
	q := a.queues[r.Account]
	a.mu.Unlock()
	if q == nil {
		return
	}
	a.metrics.recalls.Inc()
	q.do(func(queue *holder.Queue) { queue.HandleRecall(r.Pool, r.Generation) })
}

// Request is what admission needs to know of a request.
type Request struct {
	Key *auth.Key
	// Reserve is the expected cost; at least one nano-unit is held.
	Reserve money.Nano
	// Slot is false for requests that take no slot.
	Slot bool
	// Event is the request's record as far as it is known; session and reserve are filled in.
	Event event.Usage
}

// appendNeeds says what the request takes of which pools.
func (r *Request) appendNeeds(needs []wire.Need) []wire.Need {
	amount := max(int64(r.Reserve), 1)
	needs = append(needs, wire.Need{Pool: r.Key.BalancePool, Kind: wire.Balance, Amount: amount})
	if r.Key.LimitPool != 0 {
		needs = append(needs, wire.Need{Pool: r.Key.LimitPool, Kind: wire.KeyLimit, Amount: amount})
	}
	if r.Slot {
		needs = append(needs, wire.Need{Pool: r.Key.SlotsPool, Kind: wire.Slots, Amount: 1})
	}
	return needs
}

// Hold is the permission for one request to run.
type Hold struct {
	a         *Admission
	queue     *accountQueue
	waiter    *holder.Waiter
	needs     []wire.Need
	room      [3]wire.Need // for the needs: there are no more
	spoolUnit SpoolUnit
	event     event.Usage
	key       *auth.Key
	// session is the one that the request is admitted in.
	session *session.Session

	// The rest is guarded by the Admission's lock.
	ended   bool
	revoked bool
	cut     func()
}

// Acquire admits a request, or returns *RefusedError, ErrKey or
// ErrUnavailable. The order of the steps is part of the protocol.
func (a *Admission) Acquire(ctx context.Context, r Request) (*Hold, error) {
	h := &Hold{a: a, session: a.sessions.Current(), key: r.Key, event: r.Event}
	h.needs = r.appendNeeds(h.room[:0])
	entry := holder.AdmissionGate{GateChecks: h}
	switch outcome, err := entry.Before(); outcome {
	case holder.Admitted:
	case holder.SpoolFull:
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	default:
		return nil, fmt.Errorf("%w: no session", ErrUnavailable)
	}
	h.event.Session, h.event.Reservation = int64(h.session.ID), r.Reserve
	if err := h.acquire(ctx); err != nil {
		h.spoolUnit.Release()
		return nil, err
	}
	a.running.Add(1)
	a.mu.Lock()
	a.holds[h] = struct{}{}
	a.mu.Unlock()
	if err := h.complete(ctx, entry); err != nil {
		h.Release()
		return nil, err
	}
	return h, nil
}

// SessionValid implements lease.Checks.
func (h *Hold) SessionValid() bool { return h.session != nil && h.session.Valid() }

// KeyCurrent implements lease.Checks.
func (h *Hold) KeyCurrent() bool { return h.a.keys.Valid(h.key) }

// Reserve implements lease.Checks.
func (h *Hold) ReserveSpool() (err error) {
	h.spoolUnit, err = h.a.spool.Reserve()
	return err
}

// acquire waits for the hold.
func (h *Hold) acquire(ctx context.Context) (err error) {
	if h.queue, err = h.a.accountQueue(h.session, h.key.AccountID); err == nil {
		h.waiter, err = h.queue.reserve(ctx, h.needs)
	}
	return err
}

// complete asks again, after the wait, what may have changed during it.
func (h *Hold) complete(ctx context.Context, entry holder.AdmissionGate) error {
	switch entry.After() {
	case holder.Admitted:
		return nil
	case holder.StaleKey:
		if dead, _ := h.a.keys.Revoked(ctx, h.key); dead { // otherwise the client asks again
			return ErrKey
		}
		return fmt.Errorf("%w: the key's record changed", ErrUnavailable) // it may have other pools now
	default:
		return fmt.Errorf("%w: the session ended", ErrUnavailable)
	}
}

// Start notes the request in the spool. After it, the request may be sent to a
// provider and must be finished.
func (h *Hold) Start() error {
	if err := h.spoolUnit.AppendStarted(&h.event); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}

// OnLoss tells again what the running requests hold: Postgres has lost commits.
func (a *Admission) OnLoss() {
	a.mu.Lock()
	queues := map[*accountQueue]bool{}
	for h := range a.holds {
		queues[h.queue] = true
	}
	a.mu.Unlock()
	for q := range queues {
		q.do((*holder.Queue).Resync)
	}
}

// OnRevoke has cut called, once, when the key loses its right to run: at once
// if it has already. cut must not block.
func (h *Hold) OnRevoke(cut func()) {
	h.a.mu.Lock()
	defer h.a.mu.Unlock()
	if h.revoked && !h.ended {
		cut()
		return
	}
	h.cut = cut
}

// Revoked tells whether the key has lost its right to run.
func (h *Hold) Revoked() bool {
	h.a.mu.Lock()
	defer h.a.mu.Unlock()
	return h.revoked
}

// revoke cuts the request. The lock is held.
func (h *Hold) revoke() {
	if h.revoked || h.ended {
		return
	}
	h.revoked = true
	if h.cut != nil {
		h.cut()
	}
}

// Progress notes what the running request has cost so far, for the case that
// this process dies.
func (h *Hold) Progress(u price.Usage, cost money.Nano) { h.spoolUnit.AppendProgress(u, cost) }

// Finish records how the request ended and charges it. Only the first call of
// Finish or Release counts.
func (h *Hold) Finish(complete func(e *event.Usage)) {
	if !h.end() {
		return
	}
	complete(&h.event)
	h.spoolUnit.AppendFinished(&h.event)
	h.queue.do(func(queue *holder.Queue) { queue.Release(h.waiter, int64(h.event.Cost)) })
}

// Release gives everything back for a request that was not started. It may be
// deferred: after Finish it does nothing.
func (h *Hold) Release() {
	if !h.end() {
		return
	}
	h.spoolUnit.Release()
	h.queue.do(func(queue *holder.Queue) { queue.Release(h.waiter, 0) })
}

func (h *Hold) end() bool {
	h.a.mu.Lock()
	defer h.a.mu.Unlock()
	if h.ended {
		return false
	}
	h.ended = true
	delete(h.a.holds, h)
	h.a.running.Add(-1)
	return true
}

// OnChange stops the running requests of keys that a change has made invalid.
// A revoked key's are cut at once. A change of an account may be a suspension
// or something harmless, so its keys are read again first; it may have less
// money or fewer slots, so what is held idle for it goes back. A changed key
// keeps what runs.
func (a *Admission) OnChange(c wire.KeyChange) {
	if c.Kind == wire.KeyUpdated {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if q := a.queues[c.Account]; q != nil && c.Kind == wire.AccountUpdated {
		q.do((*holder.Queue).DisableEscrow)
	}
	for h := range a.holds {
		switch {
		case c.Kind == wire.KeyRevoked && h.key.HasHash(c.KeyHash):
			h.revoke()
		case c.Kind == wire.AccountUpdated && h.key.AccountID == c.Account:
			a.tasks.run(func() { a.revokeDead(h) })
		}
	}
}

// retryDead is the time between two looks at a key of which nobody can tell.
const retryDead = time.Second

// revokeDead stops a running request if its key is dead. As long as that cannot
// be told, it asks again.
func (a *Admission) revokeDead(h *Hold) {
	for {
		dead, err := a.keys.Revoked(a.ctx, h.key)
		if a.judged(h, dead) || err == nil {
			return
		}
		select {
		case <-a.ctx.Done():
			return
		case <-time.After(retryDead):
		}
	}
}

// judged stops a request whose key is dead, and tells whether there is nothing
// to stop any more.
func (a *Admission) judged(h *Hold, dead bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if dead {
		h.revoke()
	}
	return h.revoked || h.ended
}
