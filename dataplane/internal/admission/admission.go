// Package admission owns the decision whether a request may run: it reserves
// units of the account's balance, the key limit and the account's slots, and
// spool capacity.
//
// A reservation is all or nothing and ends in exactly one of two ways: Finish
// records the usage event of the request and charges its cost; Release is for a
// request that was not sent to a provider. Only the control plane refuses a
// request; in any doubt the result is ErrUnavailable.
//
// A request on its way:
//
//	Acquire    the needs (price of the estimate, one slot) go to the account's holder.Queue; it answers at once from
//	           idle units, or waits for the control plane. Then session and key are checked again
//	Start      the started record is in the spool: now the request may be sent to a provider
//	Progress   what a stream has cost so far, in case the process is killed
//	Finish     the usage event is in the spool, its cost is charged to the leases, the rest is idle again
//
// If no provider takes the request, Release gives everything back. When a key is revoked, OnChange marks the
// reservations of the key, and calls what OnRevoke has registered: the streams end, and are billed for what they have
// produced.
package admission

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"modelgateway/dataplane/internal/auth"
	"modelgateway/dataplane/internal/session"
	"modelgateway/shared/event"
	"modelgateway/shared/lease"
	"modelgateway/shared/lease/checkpoint"
	"modelgateway/shared/lease/holder"
	"modelgateway/shared/money"
	"modelgateway/shared/price"
	"modelgateway/shared/wire"
)

// Sessions has the proxy's session.
type Sessions interface {
	// Current returns the current session, nil if there is none.
	Current() *session.Session
	// Act calls do, which acts on a message of a control plane. What a later process needs to continue in the session is out of
	// date from then on.
	Act(do func())
}

// Keys checks the records of keys.
type Keys interface {
	// Valid reports whether a key record is current.
	Valid(k *auth.Key) bool
	// Renew returns the current record of a key. The error is auth.ErrInvalid if the key was revoked or its account
	// suspended.
	Renew(ctx context.Context, k *auth.Key) (*auth.Key, error)
}

// Spool reserves spool capacity for requests.
type Spool interface {
	Reserve() (SpoolUnit, error)
}

// SpoolUnit is the unit of spool capacity of one request.
type SpoolUnit interface {
	AppendStarted(e *event.Usage) error
	AppendProgress(u price.Usage, cost money.Nano)
	// AppendFinished reports whether the event was stored: otherwise it is kept in memory.
	AppendFinished(e *event.Usage) (stored bool)
	Release()
}

// Bus sends lease requests and returns to the control plane.
type Bus interface {
	RequestLease(ctx context.Context, request *wire.LeaseRequest) (*wire.LeaseResponse, error)
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
	ctx          context.Context //nolint:containedctx // it ends with the Admission
	stop         context.CancelFunc
	tasks        tasks

	windows windows

	mu      sync.Mutex
	session *session.Session
	// queues has the account queues of the current session, by account.
	queues map[string]*accountQueue
	// resumed has the idle units of the accounts without a queue if the session is that of an earlier process; nil otherwise.
	resumed map[string][]checkpoint.IdleUnits
	// lastNumber is the greatest number of a lease request of the queues that were dropped.
	lastNumber int64
	// reservations has the reservations of all running requests, by account.
	reservations reservations
}

// Units configures the idle units of accounts.
type Units struct {
	// IdleTimeout is how long they are kept after the last request of the account.
	IdleTimeout time.Duration
	// OutageTarget is for how long they should serve the requests of the last minutes without the control plane.
	OutageTarget time.Duration
}

// New returns an Admission. It is used for all sessions of the proxy.
func New(sessions Sessions, keys Keys, spool Spool, bus Bus, units Units, metrics *Metrics, log *slog.Logger) *Admission {
	a := &Admission{
		sessions:     sessions,
		keys:         keys,
		spool:        spool,
		bus:          bus,
		log:          log,
		metrics:      metrics,
		timing:       holder.DefaultTiming(rand.N[time.Duration]),
		started:      time.Now(),
		queues:       map[string]*accountQueue{},
		reservations: reservations{},
	}
	a.timing.IdleTimeout, a.timing.OutageTarget = units.IdleTimeout, units.OutageTarget
	a.ctx, a.stop = context.WithCancel(context.Background())
	a.tasks.init()

	return a
}

// elapsed returns the time of the queues' clock.
func (a *Admission) elapsed() time.Duration { return time.Since(a.started) }

// zeroMS returns the zero of the queues' clock by the clock of the machine now, which may have been set since.
func (a *Admission) zeroMS() int64 { return time.Now().UnixMilli() - a.elapsed().Milliseconds() }

// Held returns the units that the running requests of an account reserve, by pool.
// It includes requests of older sessions, and no idle units.
func (a *Admission) Held(account string) map[wire.PoolID]int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	held := map[wire.PoolID]int64{}
	for res := range a.reservations.of(account) {
		for _, n := range res.needs {
			held[n.Pool] += n.Amount
		}
	}
	return held
}

// Running returns the number of requests that are admitted and not finished.
func (a *Admission) Running() int64 { return a.running.Load() }

// OnSession is called when a new session has begun. Requests that wait in an older
// session get ErrUnavailable; running requests finish in their session. Keys that
// were revoked between the two sessions cause no key change any more, so the keys
// of all running requests are checked again.
func (a *Admission) OnSession(s *session.Session) {
	a.mu.Lock()
	old := a.queues
	a.session, a.queues, a.resumed = s, map[string]*accountQueue{}, nil
	for res := range a.reservations.all() {
		a.tasks.run(func() { a.stopIfRevoked(res) })
	}
	a.mu.Unlock()
	for _, q := range old {
		q.do((*holder.Queue).EndSession)
	}
}

// OnResume is called when the proxy continues in a session of an earlier process, with
// the idle units that are left.
func (a *Admission) OnResume(s *session.Session, idle map[string][]checkpoint.IdleUnits) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.session, a.queues, a.resumed = s, map[string]*accountQueue{}, maps.Clone(idle)
	if a.resumed == nil {
		a.resumed = map[string][]checkpoint.IdleUnits{}
	}
}

// IdleUnits returns the idle units of the current session, by account.
func (a *Admission) IdleUnits() map[string][]checkpoint.IdleUnits {
	a.mu.Lock()
	idle, queues, zeroMS := map[string][]checkpoint.IdleUnits{}, maps.Clone(a.queues), a.zeroMS()
	maps.Copy(idle, a.resumed)
	a.mu.Unlock()
	for account, q := range queues {
		q.mu.Lock()
		units := q.queue.IdleUnits(zeroMS)
		q.mu.Unlock()
		if len(units) > 0 {
			idle[account] = units
		}
	}
	return idle
}

// Stop waits until all units are returned or ctx ends, and then stops. Units of
// requests that finish later are not returned; they are freed when the session is
// closed.
func (a *Admission) Stop(ctx context.Context) {
	a.tasks.drain(ctx)
	a.stop()
	a.tasks.wait()
}

// OnRecall handles a recall of the current session.
func (a *Admission) OnRecall(r wire.Recall) {
	a.mu.Lock()
	q := a.queues[r.Account]
	a.mu.Unlock()
	if q == nil {
		return
	}
	a.metrics.recalls.Inc()
	a.sessions.Act(func() {
		q.do(func(queue *holder.Queue) { queue.HandleRecall(r.Pool, r.Generation) })
	})
}

// Request describes a request that asks for admission.
type Request struct {
	Key *auth.Key
	// ExpectedCost is the amount to reserve; at least one nano-unit is reserved.
	ExpectedCost money.Nano
	// Slot is true if the request needs a slot.
	Slot bool
	// Use is what the request uses the key for. The rules of a record that is read again are compared with it.
	Use auth.Use
	// Event is the usage event as far as it is known. Admission sets the session and the reservation.
	Event event.Usage
}

// AppendNeeds appends the needs of the request, without those of windows of limits.
func (r *Request) AppendNeeds(needs []wire.Need) []wire.Need {
	amount := max(int64(r.ExpectedCost), 1)
	needs = append(needs, wire.Need{Pool: r.Key.BalancePool, Kind: wire.Balance, Amount: amount})
	if r.Key.LimitPool != 0 {
		needs = append(needs, wire.Need{Pool: r.Key.LimitPool, Kind: wire.Limit, Amount: amount})
	}
	if r.Slot {
		needs = append(needs, wire.Need{Pool: r.Key.SlotsPool, Kind: wire.Slots, Amount: 1})
		if r.Key.KeySlotsPool != 0 {
			needs = append(needs, wire.Need{Pool: r.Key.KeySlotsPool, Kind: wire.Slots, Amount: 1})
		}
	}
	return needs
}

// Reservation has the reserved units of one admitted request.
type Reservation struct {
	a         *Admission
	queue     *accountQueue
	waiter    *holder.Waiter
	needs     []wire.Need
	room      [4]wire.Need // the backing array of needs
	spoolUnit SpoolUnit
	event     event.Usage
	key       *auth.Key
	// session is the session in which the request is admitted.
	session *session.Session

	// The Admission's lock guards the following fields. previous and next are those of the account in reservations.
	previous, next *Reservation

	ended   bool
	revoked bool
	stop    func()
}

// Acquire admits a request, or returns *RefusedError, ErrKey or ErrUnavailable.
//
// The key's record may change while the request waits: it may name other pools
// then. The request is tried once more with the new record, as if its client had
// repeated it.
func (a *Admission) Acquire(ctx context.Context, r Request) (*Reservation, error) {
	res, err := a.acquireInWindows(ctx, r)
	if !errors.Is(err, errStaleKey) {
		return res, err
	}
	current, renewErr := a.keys.Renew(ctx, r.Key)
	switch {
	case errors.Is(renewErr, auth.ErrInvalid):
		return nil, fmt.Errorf("%w: %w", ErrKey, renewErr)
	case renewErr != nil:
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, renewErr)
	}
	if err := current.Permits(r.Use); err != nil {
		return nil, fmt.Errorf("admission: %w", err)
	}
	r.Key = current
	return a.acquireInWindows(ctx, r)
}

// errStaleKey says that the key's record changed while the request waited.
var errStaleKey = fmt.Errorf("%w: the key's record changed", ErrUnavailable)

// tryAcquire admits a request with the key's record as it is, or returns
// errStaleKey. The order of the steps is part of the protocol.
func (a *Admission) tryAcquire(ctx context.Context, r Request) (*Reservation, error) {
	res := &Reservation{
		a:       a,
		session: a.sessions.Current(),
		key:     r.Key,
		event:   r.Event,
	}
	res.event.ProjectID = r.Key.ProjectID // like the windows, it is that of the record that is admitted
	var err error
	if res.needs, res.event.Limits, err = a.appendWindows(&r, r.AppendNeeds(res.room[:0])); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}

	entry := lease.Gate{GateChecks: res}
	switch outcome, err := entry.Before(); outcome {
	case lease.Admitted:
	case lease.SpoolFull:
		return nil, fmt.Errorf("%w: %w", ErrNoSpool, err)
	default:
		return nil, ErrNoSession
	}

	res.event.Session, res.event.Reservation = int64(res.session.ID), r.ExpectedCost
	if err := res.acquire(ctx); err != nil {
		res.spoolUnit.Release()
		return nil, err
	}

	a.running.Add(1)
	a.mu.Lock()
	a.reservations.add(res)
	a.mu.Unlock()

	if err := complete(entry); err != nil {
		res.Release()
		return nil, err
	}

	return res, nil
}

func (res *Reservation) SessionValid() bool { return res.session != nil && res.session.Valid() }

func (res *Reservation) KeyCurrent() bool { return res.a.keys.Valid(res.key) }

func (res *Reservation) ReserveSpool() (err error) {
	res.spoolUnit, err = res.a.spool.Reserve()
	return err
}

// acquire waits until the needs of the request are decided.
func (res *Reservation) acquire(ctx context.Context) (err error) {
	for {
		if res.queue, err = res.a.accountQueue(res.session, res.key.AccountID); err != nil {
			return err
		}
		if res.waiter, err = res.queue.reserve(ctx, res.needs); !errors.Is(err, errDropped) {
			break
		}
	}
	return err
}

// complete checks the session and the key again, because they may have changed during the wait.
func complete(entry lease.Gate) error {
	switch entry.After() {
	case lease.Admitted:
		return nil
	case lease.StaleKey:
		return errStaleKey
	default:
		return ErrNoSession
	}
}

// Check reports whether a request of a key may be answered, or sent to a provider,
// now: it returns ErrKey if the key does not work any more, and
// ErrUnavailable if the proxy has no valid session and so might not know. It is
// called before each provider call, because time passes after the admission.
func (a *Admission) Check(ctx context.Context, key *auth.Key) error {
	if s := a.sessions.Current(); s == nil || !s.Valid() {
		return ErrNoSession
	}
	if a.keys.Valid(key) {
		return nil
	}
	_, err := a.keys.Renew(ctx, key)
	switch {
	case errors.Is(err, auth.ErrInvalid):
		return fmt.Errorf("%w: %w", ErrKey, err)
	case err != nil:
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}

// Ready reports whether a request could be decided now: it returns ErrUnavailable without a valid session, or if the
// spool is full.
func (a *Admission) Ready() error {
	if s := a.sessions.Current(); s == nil || !s.Valid() {
		return ErrNoSession
	}
	unit, err := a.spool.Reserve()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoSpool, err)
	}
	unit.Release()
	return nil
}

// Start records the request in the spool as started. After that it may be sent to a
// provider, and Finish must be called.
func (res *Reservation) Start() error {
	if err := res.spoolUnit.AppendStarted(&res.event); err != nil {
		return fmt.Errorf("%w: %w", ErrNoSpool, err)
	}
	return nil
}

// OnLoss is called when Postgres has lost commits. The queues report the totals of
// their leases again.
func (a *Admission) OnLoss() {
	a.mu.Lock()
	queues := map[*accountQueue]bool{}
	for res := range a.reservations.all() {
		queues[res.queue] = true
	}
	a.mu.Unlock()
	for q := range queues {
		q.do((*holder.Queue).Resync)
	}
}

// OnRevoke registers stop, which is called once when the key is revoked or its
// account suspended, or at once if that has already happened. stop must not block.
func (res *Reservation) OnRevoke(stop func()) {
	res.a.mu.Lock()
	defer res.a.mu.Unlock()
	if res.revoked && !res.ended {
		stop()
		return
	}
	res.stop = stop
}

// Revoked reports whether the key was revoked or its account suspended.
func (res *Reservation) Revoked() bool {
	res.a.mu.Lock()
	defer res.a.mu.Unlock()
	return res.revoked
}

// revoke stops the request. The caller holds the lock.
func (res *Reservation) revoke() {
	if res.revoked || res.ended {
		return
	}
	res.revoked = true
	if res.stop != nil {
		res.stop()
	}
}

// ReleaseSlot gives the slots back before the end of the request, because its client has left.
func (res *Reservation) ReleaseSlot() {
	res.a.mu.Lock() // needs are read under it
	defer res.a.mu.Unlock()
	if !res.ended {
		res.needs = slices.DeleteFunc(slices.Clone(res.needs), func(n wire.Need) bool { return n.Kind == wire.Slots })
		res.queue.do(func(queue *holder.Queue) { queue.ReleaseSlot(res.waiter) })
	}
}

// Progress records the cost of the running request so far, in case this process is
// killed.
func (res *Reservation) Progress(u price.Usage, cost money.Nano) {
	res.spoolUnit.AppendProgress(u, cost)
}

// Finish records how the request ended and charges it. Only the first call of
// Finish or Release counts. stored reports whether the record outlives a kill of
// this process.
func (res *Reservation) Finish(complete func(e *event.Usage)) (stored bool) {
	if !res.end() {
		return false
	}
	complete(&res.event)
	stored = res.spoolUnit.AppendFinished(&res.event)
	cost := int64(res.event.LeaseCharge())
	res.queue.do(func(queue *holder.Queue) { queue.Release(res.waiter, cost) })
	return stored
}

// Release returns everything for a request that was not started. It may be
// deferred: after Finish it has no effect.
func (res *Reservation) Release() {
	if !res.end() {
		return
	}
	res.spoolUnit.Release()
	res.queue.do(func(queue *holder.Queue) { queue.Release(res.waiter, 0) })
}

// end reports whether this is the first call.
func (res *Reservation) end() bool {
	res.a.mu.Lock()
	defer res.a.mu.Unlock()
	if res.ended {
		return false
	}
	res.ended = true
	res.a.reservations.remove(res)
	res.a.running.Add(-1)
	return true
}

// OnChange stops the running requests of keys that a key change has made invalid.
// Requests of a revoked key are stopped at once. A change of an account may be a
// suspension, so the keys of its running requests are checked again; its balance
// or slots, or the limit of a changed key, may be smaller, so its idle units are
// returned. A change of a key does not affect its running requests.
func (a *Admission) OnChange(c wire.KeyChange) {
	a.mu.Lock()
	defer a.mu.Unlock()

	if c.MayReduce() {
		delete(a.resumed, c.Account)
		if q := a.queues[c.Account]; q != nil {
			q.do((*holder.Queue).DisableEscrow)
		}
	}

	switch c.Kind {
	case wire.KeyRevoked:
		for res := range a.reservations.all() {
			if res.key.HasHash(c.KeyHash) {
				res.revoke()
			}
		}
	case wire.AccountUpdated:
		for res := range a.reservations.of(c.Account) {
			a.tasks.run(func() { a.stopIfRevoked(res) })
		}
	default: // the records are read again; running requests go on
	}
}

// recheckInterval is the time between two attempts to check a key.
const recheckInterval = time.Second

// stopIfRevoked stops a running request if its key is revoked. It repeats the check
// until it succeeds.
func (a *Admission) stopIfRevoked(res *Reservation) {
	for {
		_, err := a.keys.Renew(a.ctx, res.key)
		if a.applyVerdict(res, auth.Ended(err)) || err == nil || errors.Is(err, auth.ErrInvalid) {
			return
		}
		select {
		case <-a.ctx.Done():
			return
		case <-time.After(recheckInterval):
		}
	}
}

// applyVerdict stops a request whose key is revoked, and reports whether the
// request is stopped or has ended.
func (a *Admission) applyVerdict(res *Reservation, revoked bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if revoked {
		res.revoke()
	}
	return res.revoked || res.ended
}
