package sim

import (
	"slices"
	"time"

	"modelgateway/shared/lease/holder"
	"modelgateway/shared/wire"
)

// accountQueue drives the holder.Queue of one account in one session, as the
// admission of a proxy does.
type accountQueue struct {
	p       *proxy
	session wire.SessionID
	account string
	queue   *holder.Queue
	waiting map[*holder.Waiter]*request
	// wake is the time of the timer that calls pump; holder.Never if it is not set.
	wake time.Duration
	// gaveUp and usedAt are for mutations. usedAt is when a request last came.
	gaveUp int64
	usedAt time.Duration
	// ended means that the session has ended, and new requests use another queue.
	ended bool
	// resumed means that the session is that of an earlier process.
	resumed bool
	// needed has the pools that requests of the queue have needed so far.
	needed map[wire.PoolID]bool
	// until is when the windows end of pools, as the queue was told.
	until map[wire.PoolID]time.Duration
	// request is the lease request without a response. returnedBefore has the returned totals of the account's sessions
	// when the request was made.
	request        *wire.LeaseRequest
	returnedBefore map[wire.SessionID]map[wire.PoolID]int64
}

func (p *proxy) newQueue(account string) *accountQueue {
	q := &accountQueue{
		p:       p,
		session: p.session,
		account: account,
		waiting: map[*holder.Waiter]*request{},
		needed:  map[wire.PoolID]bool{},
		until:   map[wire.PoolID]time.Duration{},
		wake:    holder.Never,
	}
	if q.resumed = p.isResumed; q.resumed {
		q.queue = holder.ResumeQueue(p.session, p.boot, account, p.idle[account], p.zeroMS(), &p.timing, &p.responseTime)
		delete(p.idle, account)
	} else {
		h := holder.NewHolder(p.session, p.boot, account)
		h.StartAfter(p.lastNumber)
		q.queue = holder.NewQueue(h, &p.timing, &p.responseTime)
	}

	p.queues[account] = q
	p.allQueues = append(p.allQueues, q)
	return q
}

// endQueues ends the queues of the session before the current one.
func (p *proxy) endQueues() {
	for _, account := range sortedKeys(p.queues) {
		q := p.queues[account]
		q.ended = true
		p.w.rules.EndSession(q.queue)
		q.pump()
	}
	p.queues = map[string]*accountQueue{}
	p.allQueues = slices.DeleteFunc(p.allQueues, func(q *accountQueue) bool {
		t := p.w.pg.sessions[q.session]
		return t == nil || t.state == 0
	})
}

// pump does what the queue requires now.
func (q *accountQueue) pump() {
	p := q.p
	now := p.clock().Mono
	out := p.w.rules.Next(q, now)
	q.checkEndedWindows(now)

	if request, _ := q.queue.Outstanding(); request != q.request {
		q.request = request
		if request != nil {
			q.returnedBefore = p.w.returnedSoFar(request)
			p.w.log("%s: lease request %d of session %d needs %v", p.name, request.Number, request.Session, request.Needs)
		}
	}

	if out.Request != nil {
		q.sendRequest(out.Request, now)
	}
	if out.Return != nil {
		q.sendReturn(out.Return, now)
	}

	q.report(out.Decided)
	if q.ended {
		p.w.checkEndedQueue(q)
	}

	q.dropUnused(now)
	if out.Wake < q.wake {
		q.wake = out.Wake
		p.after(out.Wake-now+time.Microsecond, func() {
			if q.wake == out.Wake {
				q.wake = holder.Never
				q.pump()
			}
		})
	}
}

// dropUnused drops the queue of an account that had no request for some time.
func (q *accountQueue) dropUnused(now time.Duration) {
	p := q.p
	if q.ended || p.queues[q.account] != q || !p.w.rules.Unused(q.queue, now) {
		return
	}
	p.w.stats.count("unused queues dropped")
	p.lastNumber = max(p.lastNumber, p.w.rules.LastNumber(q.queue))
	delete(p.queues, q.account)
	p.allQueues = slices.DeleteFunc(p.allQueues, func(other *accountQueue) bool { return other == q })
}

// covers reports whether idle units of pools in escrow mode cover the needs, and are to be used for a while.
func (q *accountQueue) covers(needs []wire.Need) bool {
	for _, n := range needs {
		until := q.p.w.oracle.idleUntil[poolOfSession{q.session, n.Pool}]
		if until != 0 && q.p.wallMS() > until-time.Second.Milliseconds() {
			return false
		}
		if at := q.queue.LeaseView(n.Pool); at.Central || at.Granted-at.Returned-at.Charged-at.Running < n.Amount {
			return false
		}
	}
	return true
}

// pools returns the pools of which the queue may hold units.
func (q *accountQueue) pools() []wire.PoolID { return sortedKeys(q.needed) }

// report passes decisions to the requests that wait for them.
func (q *accountQueue) report(decided []*holder.Waiter) {
	w := q.p.w
	for _, t := range decided {
		r := q.waiting[t]
		if r == nil {
			continue
		}

		delete(q.waiting, t)
		switch {
		case t.Granted():
			w.stats.count("admissions by a lease request")
			q.p.granted(r)
		case t.Refused():
			if t.Decision().Reason == "" {
				w.fail("I5: %s refuses a request without a reason", q.p.name)
			}
			q.p.reserved--
			if q.p.moved(r, t.Decision()) {
				continue
			}
			if r.windowsAt > w.profile.Length+2*window && t.Decision().Reason == wire.WrongWindow && len(r.record.Limits) > 0 {
				w.fail("liveness: %s finds no window for a request of %s", q.p.name, q.account)
			}
			w.stats.Refused++
			w.stats.count("refused: " + string(t.Decision().Reason))
		default:
			w.stats.count("requests without a decision")
			q.p.reserved--
		}
	}
}

// sendRequest is one attempt to get a response to a lease request.
func (q *accountQueue) sendRequest(outstanding *wire.LeaseRequest, sentAt time.Duration) {
	q.p.w.stats.Messages++
	request := q.p.w.rules.OutgoingRequest(q, outstanding)
	if len(request.Needs) == 0 {
		q.p.w.stats.count("lease requests that top up idle units")
	}
	if !q.p.w.fits(len(request.Reports), needCount(request)) {
		return
	}

	ask(q.p, "lease request", 0, func(c *replica, reply func(wire.LeaseResponse)) {
		c.request(request, reply)
	}, func(a wire.LeaseResponse) {
		q.p.w.rules.Resume.Void(q.p)
		q.p.w.checkFenced(outstanding, &a)
		q.learnWindows(a.Leases)
		request, _ := q.queue.Outstanding()
		handled := q.p.w.rules.HandleResponse(q.queue, q.p.clock().Mono, sentAt, outstanding, &a)
		if handled || request == outstanding && a.Status == wire.Wait {
			q.p.failing, q.p.failingSince = false, 0
		}
		if handled {
			q.p.w.log(
				"%s: lease request %d of session %d has its response: %s",
				q.p.name,
				outstanding.Number,
				outstanding.Session,
				a.Status,
			)
			q.pump()
		} else if a.Status == wire.Unavailable {
			q.requestFailed(outstanding)
		}
	}, nil)

	if !slices.ContainsFunc(q.p.w.replicas, func(c *replica) bool { return c.alive }) { // the bus says that nobody takes the message
		q.p.w.stats.count("messages that no control plane takes")
		q.p.after(q.p.w.between(0, time.Millisecond), func() {
			q.requestFailed(outstanding)
		})
	}
}

// requestFailed records that an attempt to get a decision has failed at once.
func (q *accountQueue) requestFailed(outstanding *wire.LeaseRequest) {
	p, now := q.p, q.p.clock().Mono
	if request, _ := q.queue.Outstanding(); request == outstanding {
		if !p.failing {
			p.failing, p.failingSince = true, now
		}
		defer q.pump()
		defer p.w.checkAborted(q, p.failingSince)
	}
	p.w.rules.RequestFailed(q.queue, now, outstanding)
}

// maxMessage bounds a message, in bytes. It is less than a twentieth of the limit of NATS.
const maxMessage = 48 << 10

// fits reports whether a message with so many lease reports and needs is small
// enough to be sent.
func (w *world) fits(reports, needs int) bool {
	if 200+64*reports+48*needs <= maxMessage {
		return true
	}
	w.stats.count("messages too large")
	return false
}

func needCount(r *wire.LeaseRequest) (n int) {
	for _, needs := range r.Needs {
		n += len(needs)
	}
	return n
}

// sendReturn is one attempt to return units.
func (q *accountQueue) sendReturn(ret *wire.Return, sentAt time.Duration) {
	if !q.p.w.fits(len(ret.Reports), 0) {
		return
	}
	ask(q.p, "return", 0, func(c *replica, reply func(wire.ReturnResponse)) {
		c.takeReturn(ret, reply)
	}, func(a wire.ReturnResponse) {
		q.p.w.rules.Resume.Void(q.p)
		if q.queue.HandleReturned(q.p.clock().Mono, sentAt, ret, &a) {
			q.pump()
		}
	}, nil)
}
