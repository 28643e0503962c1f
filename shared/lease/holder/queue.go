package holder

import (
	"math"
	"sync/atomic"
	"time"

	"modelgateway/shared/wire"
)

// Never is the Wake of an Output without a timer.
const Never = time.Duration(math.MaxInt64)

// Timing has the intervals of a Queue.
type Timing struct {
	// DecisionTimeout is how long a request waits for a decision.
	DecisionTimeout time.Duration
	// RequestRetry is the shortest time until a lease request is repeated, ReturnRetry the same for a return. Each
	// repetition waits half as long again, at most MaxRetry.
	RequestRetry, ReturnRetry, MaxRetry time.Duration
	// IdleTimeout is how long an account may have no new request before its idle units are returned.
	IdleTimeout time.Duration
	// Jitter returns a random duration below its argument.
	Jitter func(below time.Duration) time.Duration
}

// DefaultTiming returns the intervals of production.
func DefaultTiming(jitter func(below time.Duration) time.Duration) Timing {
	return Timing{
		DecisionTimeout: 2 * time.Second, RequestRetry: 60 * time.Millisecond, ReturnRetry: 250 * time.Millisecond,
		MaxRetry: time.Second, IdleTimeout: 10 * time.Second, Jitter: jitter,
	}
}

// ResponseTime is the smoothed time that the control plane takes to respond.
// Messages are not repeated before it has passed: a slow control plane would
// get everything several times, and become slower. It is safe for concurrent
// use; the zero value has measured nothing.
type ResponseTime struct{ smoothed atomic.Int64 }

// observe adds a measurement. Of two concurrent ones, one may be lost.
func (t *ResponseTime) observe(took time.Duration) {
	const weight = 8
	old := t.smoothed.Load()
	t.smoothed.Store(old + (int64(took)-old)/weight)
}

// RetryAfter returns how long to wait for a response before the first
// repetition.
func (t *ResponseTime) RetryAfter(least, most time.Duration) time.Duration {
	const spread = 3 // responses that take so much longer than usual are rare
	return min(max(spread*time.Duration(t.smoothed.Load()), least), most)
}

// Queue is the queue of one account in one session: a Holder together with the
// decisions when to send, to repeat and to give up. It has no clock and sends
// nothing: the caller passes the time, as the reading of a clock that does not
// go back, and calls Next after each event and when its Wake has come.
//
// The queue goes on after the end of its session, until every unit is returned:
// the control plane takes returns until it closes the session. It is not safe
// for concurrent use.
type Queue struct {
	holder   *Holder
	timing   *Timing
	response *ResponseTime
	request  outgoing
	ret      outgoing
	// expiries has the waiters in the order in which they give up.
	expiries []expiry
	// decided are the waiters that Next has not reported yet.
	decided []*Waiter
	// usedAt is when the last request came.
	usedAt time.Duration
	// ended: the session has ended, and no request waits any more. closed: the control plane takes no returns either.
	ended, closed bool
}

type expiry struct {
	waiter *Waiter
	at     time.Duration
}

// outgoing is when a message without a response is to be sent again.
type outgoing struct{ at, interval time.Duration }

// Output is what the caller of Next has to do.
type Output struct {
	// Request and Return are messages to send now, perhaps again; nil if there is none. A message that is sent again is the
	// same pointer.
	Request *wire.LeaseRequest
	Return  *wire.Return
	// Decided are the waiters that have stopped waiting.
	Decided []*Waiter
	// Wake is when Next must be called again if nothing happens before; Never if it need not.
	Wake time.Duration
}

// NewQueue returns the Queue of a Holder. Timing and response time are shared by
// the queues of a proxy.
func NewQueue(h *Holder, timing *Timing, response *ResponseTime) *Queue {
	return &Queue{holder: h, timing: timing, response: response}
}

// Reserve reserves the needs of one request. The waiter is granted at once if
// idle units cover it. Otherwise Next reports it when it is decided, at the
// latest when it has expired. It is nil after the end of the session.
func (q *Queue) Reserve(now time.Duration, needs []wire.Need) *Waiter {
	if q.ended || q.closed {
		return nil
	}
	q.usedAt = now
	w := q.holder.Reserve(needs)
	if w.wanted() {
		q.expiries = append(q.expiries, expiry{w, now + q.timing.DecisionTimeout})
	}
	return w
}

// Cancel stops a waiter from waiting. It has no effect on one that is decided.
func (q *Queue) Cancel(w *Waiter) {
	_, admitted := q.holder.Cancel(w)
	q.decided = append(q.decided, admitted...)
}

// Release ends a granted request with its cost, in nano-units.
func (q *Queue) Release(w *Waiter, cost int64) { q.holder.Release(w, cost) }

// HandleResponse takes the response to a lease request that was sent at some
// time. It reports whether that ends the repetitions of the request.
func (q *Queue) HandleResponse(now, sentAt time.Duration, request *wire.LeaseRequest, r *wire.LeaseResponse) bool {
	if request != q.holder.request || !answers(request, r) {
		return false
	}
	q.response.observe(now - sentAt)
	q.decided = append(q.decided, q.holder.HandleResponse(r)...)
	return true
}

// answers reports whether a response decides a request, now or never.
func answers(request *wire.LeaseRequest, r *wire.LeaseResponse) bool {
	return r.Status == wire.Fenced || (r.Status == wire.Done && r.Number == request.Number && len(r.Decisions) == len(request.Needs))
}

// HandleReturned takes the response to a return that was sent at some time. It
// reports whether that ends the repetitions of the return.
func (q *Queue) HandleReturned(now, sentAt time.Duration, ret *wire.Return, r *wire.ReturnResponse) bool {
	if ret != q.holder.ret || (r.Status != wire.Done && r.Status != wire.Fenced) {
		return false
	}
	q.response.observe(now - sentAt)
	q.holder.ReturnDelivered()
	q.closed = q.closed || r.Status == wire.Fenced // the session holds nothing any more
	return true
}

// HandleRecall takes a recall: idle units of the pool go back.
func (q *Queue) HandleRecall(pool wire.PoolID, generation int64) {
	q.holder.HandleRecall(pool, generation)
}

// EndSession ends all waiting, and returns what is idle from now on: another
// session takes the requests to come, and does not know of these units.
func (q *Queue) EndSession() {
	q.ended = true
	q.decided = append(q.decided, q.holder.AbortWaiters()...)
	q.holder.DisableEscrow()
}

// DisableEscrow returns all idle units, and holds none until a later response
// allows it.
func (q *Queue) DisableEscrow() { q.holder.DisableEscrow() }

// Resync reports everything again, because Postgres has lost commits.
func (q *Queue) Resync() { q.holder.Resync() }

// LeaseView returns the proxy's side of the lease on a pool.
func (q *Queue) LeaseView(pool wire.PoolID) LeaseView { return q.holder.LeaseView(pool) }

// Outstanding returns the lease request and the return that have no response
// yet; nil for none.
func (q *Queue) Outstanding() (*wire.LeaseRequest, *wire.Return) {
	if q.closed {
		return nil, nil
	}
	return q.holder.request, q.holder.ret
}

// Next returns what is to be done at a time.
func (q *Queue) Next(now time.Duration) Output {
	wake := q.expire(now)
	out := Output{Decided: q.decided, Wake: wake}
	q.decided = nil
	if q.closed {
		return out
	}
	if idleAt := q.returnUnused(now); idleAt < out.Wake {
		out.Wake = idleAt
	}
	if q.holder.NextRequest() != nil {
		q.request = outgoing{now, q.response.RetryAfter(q.timing.RequestRetry, q.timing.MaxRetry)}
	}
	if q.holder.NextReturn() != nil {
		q.ret = outgoing{now, q.response.RetryAfter(q.timing.ReturnRetry, q.timing.MaxRetry)}
	}
	if q.holder.request != nil {
		if q.due(&q.request, now) {
			out.Request = q.holder.request
		}
		out.Wake = min(out.Wake, q.request.at)
	}
	if q.holder.ret != nil {
		if q.due(&q.ret, now) {
			out.Return = q.holder.ret
		}
		out.Wake = min(out.Wake, q.ret.at)
	}
	return out
}

// due reports whether a message is to be sent now, and plans its repetition.
func (q *Queue) due(o *outgoing, now time.Duration) bool {
	if now < o.at {
		return false
	}
	o.at = now + o.interval + q.timing.Jitter(q.timing.RequestRetry/2)
	o.interval = min(o.interval*3/2, q.timing.MaxRetry)
	return true
}

// expire cancels the waiters whose time is over, and returns when the next one's
// is. The lease request that asks for them is repeated all the same: it may have
// been granted.
func (q *Queue) expire(now time.Duration) time.Duration {
	for len(q.expiries) > 0 {
		e := q.expiries[0]
		if e.waiter.wanted() {
			if now < e.at {
				return e.at
			}
			q.decided = append(q.decided, e.waiter)
			q.Cancel(e.waiter)
		}
		q.expiries[0] = expiry{}
		q.expiries = q.expiries[1:]
	}
	q.expiries = nil
	return Never
}

// returnUnused returns the idle units of an account without recent requests. It
// returns when to look again.
func (q *Queue) returnUnused(now time.Duration) time.Duration {
	if !q.holder.hasIdle() {
		return Never
	}
	if at := q.usedAt + q.timing.IdleTimeout; now < at {
		return at
	}
	q.holder.ReturnIdle()
	return Never
}
