package admission

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"modelgateway/dataplane/internal/session"
	"modelgateway/shared/lease/holder"
	"modelgateway/shared/wire"
)

// responseTimeout is how long the response to one attempt is accepted. It is
// longer than the time until the message is repeated. Otherwise the responses of a
// slow control plane would never be accepted, and the repetitions would keep it
// slow.
const responseTimeout = 10 * time.Second

// accountQueue runs the holder.Queue of one account in one session: it adds the
// lock, the timer and the goroutines that send messages.
type accountQueue struct {
	a       *Admission
	account string

	mu    sync.Mutex
	queue *holder.Queue
	// waiters has a channel for each waiting request. It is closed when the request is decided.
	waiters map[*holder.Waiter]chan struct{}
	request call[wire.LeaseRequest]
	ret     call[wire.Return]
	// busy is true while a message has no response. Stop waits for it.
	busy bool
	// dropped means that requests use another queue of the account.
	dropped bool
	// timer calls tick at the time wake, which is holder.Never if the timer is stopped.
	timer *time.Timer
	wake  time.Duration
}

// call is the context that all attempts to send one message share.
type call[M any] struct {
	message *M
	ctx     context.Context //nolint:containedctx // it ends with the message, not with a function
	cancel  context.CancelFunc
}

// follow sets the outstanding message. If the message is another one than before,
// follow ends the attempts to send the old one.
func (c *call[M]) follow(ctx context.Context, outstanding *M) {
	if c.message == outstanding {
		return
	}
	if c.cancel != nil {
		c.cancel()
	}
	*c = call[M]{message: outstanding}
	if outstanding != nil {
		c.ctx, c.cancel = context.WithCancel(ctx)
	}
}

// accountQueue returns the queue of an account in the current session.
func (a *Admission) accountQueue(s *session.Session, account string) (*accountQueue, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.session != s {
		return nil, fmt.Errorf("%w: the session changed", ErrUnavailable)
	}

	q := a.queues[account]
	if q == nil {
		q = &accountQueue{
			a:       a,
			account: account,
			queue:   a.newQueue(s, account),
			waiters: map[*holder.Waiter]chan struct{}{},
			wake:    holder.Never,
		}
		a.queues[account] = q
	}

	return q, nil
}

// newQueue is called with the lock held.
func (a *Admission) newQueue(s *session.Session, account string) *holder.Queue {
	if a.resumed != nil {
		idle := a.resumed[account]
		delete(a.resumed, account)
		return holder.ResumeQueue(s.ID, s.Boot, account, idle, a.zeroMS(), &a.timing, &a.responseTime)
	}
	h := holder.NewHolder(s.ID, s.Boot, account)
	h.StartAfter(a.lastNumber)
	return holder.NewQueue(h, &a.timing, &a.responseTime)
}

// dropUnused drops a queue that holds nothing, because its account has had no
// request for some time.
func (a *Admission) dropUnused(q *accountQueue) {
	a.mu.Lock()
	defer a.mu.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	if a.queues[q.account] != q || !q.queue.Unused(a.elapsed()) {
		return
	}
	q.dropped = true
	a.lastNumber = max(a.lastNumber, q.queue.LastNumber())
	delete(a.queues, q.account)
}

// errDropped says that the queue was dropped before the request reached it.
var errDropped = errors.New("admission: the account's queue was dropped")

// errAborted is the result of a request that cannot be decided now.
var errAborted = fmt.Errorf("%w: the session ended, or no control plane decides", ErrUnavailable)

// reserve waits for a decision on the needs of one request.
func (q *accountQueue) reserve(ctx context.Context, needs []wire.Need) (*holder.Waiter, error) {
	q.mu.Lock()
	if q.dropped {
		q.mu.Unlock()
		return nil, errDropped
	}

	w := q.queue.Reserve(q.a.elapsed(), needs)
	if w == nil || w.Granted() || w.Aborted() {
		q.mu.Unlock()
		if w == nil || w.Aborted() {
			return nil, errAborted
		}
		q.a.metrics.local.Inc()
		return w, nil
	}

	decided := make(chan struct{})
	q.waiters[w] = decided
	q.pump()
	q.mu.Unlock()
	q.a.metrics.synchronous.Inc()

	select {
	case <-decided:
	case <-ctx.Done():
	}

	return q.decision(ctx, w, needs)
}

// decision returns the result of a waiter. A waiter that is not decided is cancelled.
func (q *accountQueue) decision(ctx context.Context, w *holder.Waiter, needs []wire.Need) (*holder.Waiter, error) {
	q.mu.Lock()
	defer q.mu.Unlock()

	if q.waiters[w] != nil { // ctx has ended
		delete(q.waiters, w)
		q.queue.Cancel(w)
		q.pump()
	}

	switch {
	case w.Granted():
		return w, nil
	case w.Refused():
		decision := w.Decision()
		refused := &RefusedError{Decision: decision}
		for _, n := range needs {
			if n.Pool == decision.Pool {
				refused.Wanted = n.Amount
			}
		}
		return nil, refused
	case w.Aborted():
		return nil, errAborted
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
	default:
		return nil, fmt.Errorf("%w: no decision in %s", ErrUnavailable, q.a.timing.DecisionTimeout)
	}
}

// do calls event with the queue, and then pump.
func (q *accountQueue) do(event func(*holder.Queue)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	event(q.queue)
	q.pump()
}

// pump delivers decisions, sends messages and sets the timer, as the queue
// requires. It is called after every change of the queue. The caller holds the lock.
func (q *accountQueue) pump() {
	now := q.a.elapsed()
	out := q.queue.Next(now)
	for _, w := range out.Decided {
		if decided := q.waiters[w]; decided != nil {
			delete(q.waiters, w)
			close(decided)
		}
	}

	request, ret := q.queue.Outstanding()
	q.request.follow(q.a.ctx, request)
	q.ret.follow(q.a.ctx, ret)

	if busy := request != nil || ret != nil; busy != q.busy {
		q.busy = busy
		q.a.tasks.setBusy(busy)
	}

	if out.Request != nil {
		ctx := q.request.ctx
		q.a.tasks.run(func() { q.sendRequest(ctx, out.Request, now) })
	}

	if out.Return != nil {
		ctx := q.ret.ctx
		q.a.tasks.run(func() { q.sendReturn(ctx, out.Return, now) })
	}

	if q.queue.Unused(now) && !q.dropped {
		q.a.tasks.run(func() { q.a.dropUnused(q) })
	}
	if q.a.ctx.Err() == nil || len(q.waiters) > 0 {
		q.arm(now, out.Wake)
	}
}

// arm sets the timer to a time, unless it is set to an earlier one. In that case
// tick sets it again.
func (q *accountQueue) arm(now, at time.Duration) {
	if at >= q.wake {
		return
	}
	q.wake = at
	if q.timer == nil {
		q.timer = time.AfterFunc(at-now, q.tick)
		return
	}
	q.timer.Reset(at - now)
}

func (q *accountQueue) tick() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wake = holder.Never
	q.pump()
}

// sendRequest is one attempt to get a response to a lease request.
func (q *accountQueue) sendRequest(ctx context.Context, request *wire.LeaseRequest, sentAt time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, responseTimeout)
	defer cancel()
	response, err := q.a.bus.RequestLease(ctx, request)
	switch {
	case errors.Is(err, ErrNoControlPlane) || (err == nil && response.Status == wire.Unavailable):
		q.do(func(queue *holder.Queue) { queue.RequestFailed(q.a.elapsed(), request) })
	case err == nil:
		q.a.windows.learn(response.Leases)
		q.handle(response.Status, func(queue *holder.Queue) {
			q.learnEnds(queue, response.Leases)
			queue.HandleResponse(q.a.elapsed(), sentAt, request, response)
		})
	} // the queue repeats a request without a response
}

// sendReturn is one attempt to return units.
func (q *accountQueue) sendReturn(ctx context.Context, ret *wire.Return, sentAt time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, responseTimeout)
	defer cancel()
	response, err := q.a.bus.Return(ctx, ret)
	if err != nil {
		q.a.log.Debug("return of units failed and will be repeated", slog.Any("error", err))
		return
	}
	q.handle(response.Status, func(queue *holder.Queue) { queue.HandleReturned(q.a.elapsed(), sentAt, ret, response) })
}

// handle handles a response with a status. One without a decision changes nothing that
// a later process needs to know.
func (q *accountQueue) handle(status wire.Status, event func(*holder.Queue)) {
	if status == wire.Unavailable {
		q.do(event)
		return
	}
	q.a.sessions.Act(func() { q.do(event) })
}
