package allocator

import (
	"math"
	"slices"
	"time"

	"modelgateway/shared/wire"
)

// Never is the wake time of a Batcher without a timer.
const Never = time.Duration(math.MaxInt64)

// BatcherConfig has the limits and times of a Batcher.
type BatcherConfig struct {
	// MaxBatch bounds the messages of one transaction, MaxQueue those that wait for one.
	MaxBatch, MaxQueue int
	// RefusalGrace is how long a lease request waits for units that running requests may return before it is refused.
	RefusalGrace time.Duration
	// RecallTimeout is how long a lease request waits for recalled units before its proxy is told to repeat it. Another
	// replica may get the answers to the recall: the request is decided again after RecallInterval, then after twice as
	// long each time.
	RecallTimeout, RecallInterval time.Duration
	// Escrow lets pools with headroom enter escrow mode.
	Escrow bool
	Policy EscrowPolicy
}

// Decider decides messages within a transaction. A Batch is one.
type Decider interface {
	ApplyReturn(r *wire.Return) wire.Status
	Decide(request *wire.LeaseRequest, pending *PendingRequest, applyPolicy func(*Batch)) (response *wire.LeaseResponse, recalling bool)
	Recalls() map[wire.SessionID][]wire.Recall
}

// Batcher collects lease requests and returns for one transaction after the
// other, and keeps the requests that cannot be decided yet. It has no clock and
// does no I/O: the caller passes the time, as the reading of a clock that does
// not go back, runs the transactions that Next returns, and answers. While one
// runs, the next batch grows: batches are as large as the load makes them, and a
// lone message waits for nothing.
//
// It is not safe for concurrent use, except that Transaction.Decide may run
// while messages are added.
type Batcher struct {
	cfg      BatcherConfig
	arrivals int64
	queue    []*message
	pending  []*message
	// unanswered has the requests without a response, by their number. A repeated one joins the first: while the control
	// plane is slow, most messages are repetitions, and to decide them anew would keep it slow.
	unanswered       map[requestNumber]*message
	running, stopped bool
}

type requestNumber struct {
	RequestKey
	number int64
}

// message is a lease request with all its senders, or a return.
type message struct {
	request   *wire.LeaseRequest
	ret       *wire.Return
	responses []func(wire.LeaseResponse)
	returned  func(wire.ReturnResponse)
	// arrival orders the messages.
	arrival int64
	// state is the state of a pending request as of its last committed decision.
	state PendingRequest
	// waits: the request is pending, for a recall if recalling. It is decided in any case at until, and again at lookAt at
	// the latest, which was interval after the last time.
	waits, recalling        bool
	until, lookAt, interval time.Duration
}

// Transaction is one batch of messages to be decided in a transaction of the
// database.
type Transaction struct {
	batcher  *Batcher
	at       time.Duration
	messages []*message
	outcomes []outcome
	recalls  map[wire.SessionID][]wire.Recall
}

// outcome is the decision of one message. A request without a response stays
// pending.
type outcome struct {
	response  *wire.LeaseResponse
	returned  wire.Status
	state     PendingRequest
	recalling bool
}

// NewBatcher returns a Batcher without messages.
func NewBatcher(cfg BatcherConfig) *Batcher {
	return &Batcher{cfg: cfg, unanswered: map[requestNumber]*message{}}
}

// AddRequest queues a lease request. It returns false if the queue is full or
// the Batcher has stopped; otherwise respond is among the responses of Commit,
// Fail or Stop, once.
func (b *Batcher) AddRequest(request *wire.LeaseRequest, respond func(wire.LeaseResponse)) bool {
	number := numberOf(request)
	m := b.unanswered[number]
	if m == nil {
		if m = b.add(&message{request: request}); m == nil {
			return false
		}
		b.unanswered[number] = m
	}
	m.responses = append(m.responses, respond)
	return true
}

// AddReturn queues a return, as AddRequest does.
func (b *Batcher) AddReturn(ret *wire.Return, respond func(wire.ReturnResponse)) bool {
	return b.add(&message{ret: ret, returned: respond}) != nil
}

func (b *Batcher) add(m *message) *message {
	if b.stopped || len(b.queue) >= b.cfg.MaxQueue {
		return nil
	}
	b.arrivals++
	m.arrival = b.arrivals
	b.queue = append(b.queue, m)
	return m
}

func numberOf(r *wire.LeaseRequest) requestNumber {
	return requestNumber{RequestKey{r.Session, r.Account}, r.Number}
}

// Next returns the transaction to run now, or nil and the time at which Next
// must be called again if no message comes before. None is returned while one
// runs: until its Commit or Fail.
func (b *Batcher) Next(now time.Duration) (tx *Transaction, wake time.Duration) {
	if b.running || b.stopped {
		return nil, Never
	}
	n := min(len(b.queue), b.cfg.MaxBatch)
	messages := append(b.takeReady(b.queue[:n], now), b.queue[:n]...)
	if len(messages) == 0 {
		wake = Never
		for _, m := range b.pending {
			wake = min(wake, m.lookAt)
		}
		return nil, wake
	}
	clear(b.queue[:n])
	b.queue = b.queue[n:]
	b.running = true
	return &Transaction{batcher: b, at: now, messages: messages, outcomes: make([]outcome, len(messages))}, Never
}

// takeReady takes the pending requests that are to be decided again: those whose
// time has come, and those of accounts that return units in the batch. They came
// first, so they are decided first, in the order in which they came.
func (b *Batcher) takeReady(batch []*message, now time.Duration) []*message {
	if len(b.pending) == 0 {
		return nil
	}
	returning := map[string]bool{}
	for _, m := range batch {
		switch {
		case m.ret != nil:
			returning[m.ret.Account] = true
		case len(m.request.Reports) > 0:
			returning[m.request.Account] = true
		}
	}
	var ready, rest []*message
	for _, m := range b.pending {
		if returning[m.request.Account] || now >= m.lookAt {
			ready = append(ready, m)
		} else {
			rest = append(rest, m)
		}
	}
	b.pending = rest
	slices.SortFunc(ready, func(x, y *message) int { return int(x.arrival - y.arrival) })
	return ready
}

// Requests returns the lease requests of the batch.
func (t *Transaction) Requests() []*wire.LeaseRequest {
	var requests []*wire.LeaseRequest
	for _, m := range t.messages {
		if m.request != nil {
			requests = append(requests, m.request)
		}
	}
	return requests
}

// Returns returns the returns of the batch.
func (t *Transaction) Returns() []*wire.Return {
	var returns []*wire.Return
	for _, m := range t.messages {
		if m.ret != nil {
			returns = append(returns, m.ret)
		}
	}
	return returns
}

// Len returns the number of messages.
func (t *Transaction) Len() int { return len(t.messages) }

// Decide decides the whole batch: the returns first, then the lease requests in
// their order. It is called within the database transaction, and again if that
// is repeated.
func (t *Transaction) Decide(d Decider) {
	for i, m := range t.messages {
		if m.ret != nil {
			t.outcomes[i] = outcome{returned: d.ApplyReturn(m.ret)}
		}
	}
	for i, m := range t.messages {
		if m.request != nil {
			t.outcomes[i] = t.decide(d, m)
		}
	}
	t.recalls = d.Recalls()
}

func (t *Transaction) decide(d Decider, m *message) outcome {
	o := outcome{state: m.state.Clone()}
	o.state.MayWait = !m.waits || t.at < m.until
	o.state.ResendRecall = m.waits && t.at >= m.lookAt
	o.response, o.recalling = d.Decide(m.request, &o.state, func(b *Batch) {
		if t.batcher.cfg.Escrow {
			t.batcher.cfg.Policy.Apply(b.Allocator, b.LiveSessions, m.request, t.at)
		}
	})
	return o
}

// Commit records that the database transaction has committed. It returns the
// responses, each to be called once, and the recalls to send. A recall may be
// lost: it is sent again as long as a request waits for it.
func (b *Batcher) Commit(t *Transaction) (responses []func(), recalls map[wire.SessionID][]wire.Recall) {
	b.running = false
	for i, m := range t.messages {
		o := t.outcomes[i]
		switch {
		case m.ret != nil:
			responses = append(responses, m.answerReturn(o.returned))
		case o.response != nil:
			responses = append(responses, b.answer(m, *o.response))
		default:
			m.state = o.state
			b.wait(m, o.recalling, t.at)
		}
	}
	return responses, t.recalls
}

// Fail records that the database transaction has failed, perhaps after its
// commit. It returns the responses: whoever asked repeats the message, and gets
// the stored result of a decision that was committed.
func (b *Batcher) Fail(t *Transaction) []func() {
	b.running = false
	return b.unavailable(t.messages)
}

// Stop takes no more messages, and returns the responses to all that wait.
func (b *Batcher) Stop() []func() {
	b.stopped = true
	responses := append(b.unavailable(b.pending), b.unavailable(b.queue)...)
	b.pending, b.queue = nil, nil
	return responses
}

func (b *Batcher) unavailable(messages []*message) []func() {
	var responses []func()
	for _, m := range messages {
		if m.ret != nil {
			responses = append(responses, m.answerReturn(wire.Unavailable))
		} else {
			responses = append(responses, b.answer(m, Unavailable(m.request)))
		}
	}
	return responses
}

// Unavailable is the response to a lease request that cannot be decided now.
func Unavailable(r *wire.LeaseRequest) wire.LeaseResponse {
	return wire.LeaseResponse{V: wire.Version, Number: r.Number, Status: wire.Unavailable}
}

func (m *message) answerReturn(status wire.Status) func() {
	return func() { m.returned(wire.ReturnResponse{V: wire.Version, Status: status}) }
}

func (b *Batcher) answer(m *message, response wire.LeaseResponse) func() {
	delete(b.unanswered, numberOf(m.request))
	return func() {
		for _, respond := range m.responses {
			respond(response)
		}
	}
}

// wait has a request wait, for a recall or for running requests. Its time counts
// anew when it waits for the other of the two.
func (b *Batcher) wait(m *message, recalling bool, now time.Duration) {
	switch {
	case !m.waits || m.recalling != recalling:
		m.recalling, m.until, m.interval = recalling, now+b.cfg.RefusalGrace, b.cfg.RefusalGrace
		if recalling {
			m.until, m.interval = now+b.cfg.RecallTimeout, b.cfg.RecallInterval
		}
	case now >= m.lookAt:
		m.interval *= 2
	}
	m.waits, m.lookAt = true, min(now+m.interval, m.until)
	b.pending = append(b.pending, m)
}
