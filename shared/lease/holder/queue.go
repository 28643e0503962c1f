package holder

import (
	"math"
	"time"

	"modelgateway/shared/wire"
)

// Never is the Wake of an Output after which Next need not be called again.
const Never = time.Duration(math.MaxInt64)

// Timing has the intervals of a Queue.
type Timing struct {
	// DecisionTimeout is how long a request waits for a decision.
	DecisionTimeout time.Duration
	// RequestRetry is the shortest time until a lease request is repeated, ReturnRetry the same for a return. The interval
	// grows by half with each repetition, up to MaxRetry.
	RequestRetry, ReturnRetry, MaxRetry time.Duration
	// IdleTimeout is how long an account may have no new request before its idle units are returned. They are kept for
	// longer while the control plane does not respond.
	IdleTimeout time.Duration
	// OutageTarget is for how long idle units should serve the requests of the last minutes without the control plane. They
	// are topped up in time for that, if the pool can spare them. Zero: they are not.
	OutageTarget time.Duration
	// ForgetInterval is how often leases that hold nothing are forgotten, and how long an account may have no new request
	// before its queue can be dropped.
	ForgetInterval time.Duration
	// Jitter returns a random duration below its argument.
	Jitter func(below time.Duration) time.Duration
}

// DefaultTiming returns the intervals that the data plane uses by default.
func DefaultTiming(jitter func(below time.Duration) time.Duration) Timing {
	return Timing{
		DecisionTimeout: 2 * time.Second,
		RequestRetry:    60 * time.Millisecond,
		ReturnRetry:     250 * time.Millisecond,
		MaxRetry:        time.Second,
		IdleTimeout:     15 * time.Minute,
		OutageTarget:    15 * time.Minute,
		ForgetInterval:  10 * time.Second,
		Jitter:          jitter,
	}
}

// Queue is the account queue of one account in one session: a Holder together
// with the decisions when to send, to repeat and to give up. It has no clock and
// sends nothing: the caller passes the reading of a clock that does not go back,
// and calls Next after each event and at the time Output.Wake.
//
// The queue outlives its session until every unit is returned: the control plane
// accepts returns until it closes the session. It is not safe for concurrent
// use.
type Queue struct {
	holder   *Holder
	timing   *Timing
	response *ResponseTime
	request  outgoing
	ret      outgoing
	// expiries has the waiters in the order of their expiry.
	expiries []expiry
	// decided are the waiters that Next has not reported yet.
	decided []*Waiter
	// usedAt is when Reserve was last called, forgetAt when settled leases are forgotten next; zero before Next was called.
	usedAt, forgetAt time.Duration
	// answeredAt is when the last return that has a response was sent.
	answeredAt time.Duration
	// failing means that the last attempt to get a decision for this account has failed, and that every one of the proxy
	// had failed for a decision timeout by then. The attempt is repeated, so that this does not outlive the outage.
	failing bool
	// ended means that the session has ended, and no request waits any more; closed that the control plane accepts no
	// returns either.
	ended, closed bool
	// resumed means that the session is that of an earlier process, see ResumeQueue.
	resumed bool
}

type expiry struct {
	waiter *Waiter
	at     time.Duration
}

// outgoing is the time at which a message without a response is sent again, and
// the interval until the time after that.
type outgoing struct{ at, interval time.Duration }

// Output lists what the caller of Next must do.
type Output struct {
	// Request and Return are messages to send now, for the first time or again; nil if there is none. A repeated message
	// is the same pointer.
	Request *wire.LeaseRequest
	Return  *wire.Return
	// Decided are the waiters that have stopped waiting.
	Decided []*Waiter
	// Wake is the time at which Next must be called again if nothing happens before; Never if it need not be.
	Wake time.Duration
}

// NewQueue returns the Queue of a Holder. All queues of a proxy share timing and
// response.
func NewQueue(h *Holder, timing *Timing, response *ResponseTime) *Queue {
	return &Queue{holder: h, timing: timing, response: response}
}

// Reserve reserves the needs of one request. The waiter is granted at once if
// idle units cover it, and aborted at once while no replica of the control plane
// decides. In all other cases Next reports it when it is decided or has expired. The
// waiter is nil after the end of the session.
func (q *Queue) Reserve(now time.Duration, needs []wire.Need) *Waiter {
	if q.resumed && !q.ended {
		return q.reserveResumed(now, needs)
	}
	if q.ended || q.closed {
		return nil
	}

	q.usedAt = now
	w := q.holder.Reserve(needs)
	if w.isWaiting() && q.request.interval > q.timing.MaxRetry { // it waits for the response to a request that only tops up
		q.request = outgoing{now, q.timing.RequestRetry}
	}

	switch {
	case w.isWaiting() && q.failing && q.response.FailingFor(now) >= q.timing.DecisionTimeout:
		q.holder.Cancel(w)
		w.state = aborted
	case w.isWaiting():
		q.expiries = append(q.expiries, expiry{w, now + q.timing.DecisionTimeout})
	}

	return w
}

// Cancel cancels a waiter. It has no effect on one that is decided.
func (q *Queue) Cancel(w *Waiter) {
	q.holder.Cancel(w)
}

// Release ends a granted request with its cost, in nano-units.
func (q *Queue) Release(w *Waiter, cost int64) {
	q.decided = append(q.decided, q.holder.Release(w, cost)...)
}

// ReleaseSlot gives the slot of a granted request back before its end.
func (q *Queue) ReleaseSlot(w *Waiter) {
	q.decided = append(q.decided, q.holder.ReleaseSlot(w)...)
}

// HandleResponse applies the response to a lease request that was sent at
// sentAt. It reports whether the request need not be repeated any more.
func (q *Queue) HandleResponse(now, sentAt time.Duration, request *wire.LeaseRequest, r *wire.LeaseResponse) bool {
	if request != q.holder.request {
		return false
	}
	if answers(request, r) || r.Status == wire.Wait && !q.closed { // a control plane works on the request
		q.response.Succeeded()
		q.failing = false
	}
	if !answers(request, r) {
		return false
	}
	q.response.Observe(now - sentAt)
	q.decided = append(q.decided, q.holder.HandleResponse(r)...)
	return true
}

// RequestFailed records that an attempt to get a response to a lease request has
// failed at once: no replica of the control plane takes messages, or it cannot
// decide now. If that has been so for all requests of the proxy for a decision
// timeout, waiting is pointless, and the waiters are aborted. Until then they wait: a
// replica may just be restarting. The lease request is repeated all the same, because
// an earlier attempt may have been granted.
func (q *Queue) RequestFailed(now time.Duration, request *wire.LeaseRequest) {
	if request != q.holder.request || q.closed { // a closed queue waits for no decision
		return
	}
	if q.failing = now-q.response.Failed(now) >= q.timing.DecisionTimeout; q.failing {
		q.decided = append(q.decided, q.holder.AbortWaiters()...)
	}
}

// answers reports whether a response has the decisions of a request, or says
// that there will be none.
func answers(request *wire.LeaseRequest, r *wire.LeaseResponse) bool {
	return r.Status == wire.Fenced || (r.Status == wire.Done && r.Number == request.Number && len(r.Decisions) == len(request.Needs))
}

// HandleReturned applies the response to a return that was sent at sentAt. It
// reports whether the return need not be repeated any more.
func (q *Queue) HandleReturned(now, sentAt time.Duration, ret *wire.Return, r *wire.ReturnResponse) bool {
	if ret != q.holder.ret || (r.Status != wire.Done && r.Status != wire.Fenced) {
		return false
	}
	q.response.Observe(now - sentAt)
	q.answeredAt = max(q.answeredAt, sentAt)
	q.holder.ReturnDelivered(r.Settled)
	q.closed = q.closed || r.Status == wire.Fenced // the session holds nothing any more
	return true
}

// HandleRecall applies a recall: Next returns the idle units of the pool.
func (q *Queue) HandleRecall(pool wire.PoolID, generation int64) {
	q.holder.HandleRecall(pool, generation)
}

// EndSession aborts all waiters, and returns the idle units, now and as requests
// end: the next session cannot use them.
func (q *Queue) EndSession() {
	q.ended = true
	q.decided = append(q.decided, q.holder.AbortWaiters()...)
	q.holder.DisableEscrow()
}

// DisableEscrow returns all idle units, and holds none until the response to a
// later lease request allows it.
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

// Next returns what the caller must do at a time.
func (q *Queue) Next(now time.Duration) Output {
	wake := q.expire(now)
	out := Output{Decided: q.decided, Wake: wake}
	q.decided = nil
	if q.closed {
		return out
	}

	out.Wake = min(out.Wake, q.holder.endWindows(now), q.returnUnused(now), q.forgetSettled(now))
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

// due reports whether a message must be sent now, and schedules its repetition.
func (q *Queue) due(o *outgoing, now time.Duration) bool {
	if now < o.at {
		return false
	}
	o.at = now + o.interval + q.timing.Jitter(q.timing.RequestRetry/2)
	longest := q.timing.MaxRetry
	if o == &q.request && len(q.expiries) == 0 { // no request waits for it
		longest = max(longest, q.timing.ForgetInterval)
	}
	o.interval = min(o.interval*3/2, longest)
	return true
}

// expire cancels the requests that have expired. It returns when the next one
// expires. Their lease request is repeated all the same: it may have been granted.
func (q *Queue) expire(now time.Duration) time.Duration {
	for len(q.expiries) > 0 {
		e := q.expiries[0]
		if e.waiter.isWaiting() {
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

// returnUnused returns the idle units of an account without recent requests, when
// a return that was sent after the idle timeout has a response. While there is
// none, they are kept: the account could not get others. Its result is the time at
// which it must be called again.
func (q *Queue) returnUnused(now time.Duration) time.Duration {
	if !q.holder.hasIdle() {
		return Never
	}
	at := q.usedAt + q.timing.IdleTimeout
	switch {
	case now < at:
		return at
	case q.answeredAt >= at:
		q.holder.ReturnIdle()
		q.forgetAt = min(q.forgetAt, now+q.timing.ForgetInterval) // nothing is idle any more
	case q.holder.ret == nil:
		q.holder.ReportIdle()
	}
	return Never
}

// forgetSettled forgets the leases that hold nothing, once in each forget interval,
// and less and less often while an unused account keeps idle units: proxies may have
// many of those. Its result is the time at which it must be called again.
func (q *Queue) forgetSettled(now time.Duration) time.Duration {
	if now >= q.forgetAt && q.forgetAt > 0 {
		q.forgetAt = 0
		q.holder.ForgetSettled()
		q.holder.low = nil
		if q.timing.OutageTarget > 0 && !q.ended && !q.failing && now < q.usedAt+q.timing.IdleTimeout {
			q.holder.measure(now, q.timing.OutageTarget)
		}
	}

	unusedAt := q.usedAt + q.timing.ForgetInterval
	switch {
	case q.ended:
		return Never
	case len(q.holder.pools) > 0 && q.forgetAt == 0:
		q.forgetAt = now + q.timing.ForgetInterval
		if q.holder.hasIdle() {
			q.forgetAt = max(q.forgetAt, q.laterForget(now))
		}
		return q.forgetAt
	case len(q.holder.pools) > 0:
		return q.forgetAt
	case now < unusedAt:
		return unusedAt
	}

	return Never
}

// laterForget doubles the time that the account is unused, but not beyond the idle
// timeout if that is to come.
func (q *Queue) laterForget(now time.Duration) time.Duration {
	later, idleAt := now+(now-q.usedAt), q.usedAt+q.timing.IdleTimeout
	if now < idleAt {
		return min(later, idleAt)
	}
	return later
}

// Unused reports whether the queue can be dropped: it holds nothing, and the
// account has had no request for some time. A later queue of the account in the
// same session must start after LastNumber.
func (q *Queue) Unused(now time.Duration) bool {
	return !q.ended && now >= q.usedAt+q.timing.ForgetInterval && len(q.expiries) == 0 && len(q.decided) == 0 && q.holder.Unused()
}

// LastNumber returns the number of the last lease request.
func (q *Queue) LastNumber() int64 { return q.holder.lastNumber }
