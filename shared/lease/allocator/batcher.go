package allocator

import (
	"math"
	"slices"
	"time"

	"modelgateway/shared/wire"
)

// Never is the wake time of a Batcher that need not be called again.
const Never = time.Duration(math.MaxInt64)

// These times are constants of the protocol.
const (
	// RefusalGrace is the default of BatcherConfig.RefusalGrace. It is longer than a message between the planes takes.
	RefusalGrace = 50 * time.Millisecond
	// RecallTimeout is how long a lease request waits for recalled units before the response makes its proxy repeat it.
	// The answers to the recall may go to another replica, so the request is decided again after recallInterval; the
	// interval doubles each time.
	RecallTimeout  = 250 * time.Millisecond
	recallInterval = 10 * time.Millisecond
)

// BatcherConfig has the limits and the refusal grace period of a Batcher.
type BatcherConfig struct {
	// MaxBatch bounds the messages of one transaction, MaxQueue those that wait for one. One account may have a quarter of
	// the queue.
	MaxBatch, MaxQueue int
	// RefusalGrace is how long a lease request waits for units that running requests may return before it is refused; 0
	// means the constant RefusalGrace.
	RefusalGrace time.Duration
	// Escrow switches pools with headroom to escrow mode, by Policy.
	Escrow bool
	Policy EscrowPolicy
}

// Decider decides messages within a transaction. Batch implements it.
type Decider interface {
	ApplyReturn(r *wire.Return) wire.ReturnResponse
	Decide(request *wire.LeaseRequest, pending *PendingRequest, applyPolicy func(*Batch)) (response *wire.LeaseResponse, recalling bool)
	Recalls() map[wire.SessionID][]wire.Recall
}

// Batcher collects lease requests and returns into batches, one transaction
// after the other, and keeps the requests that cannot be decided yet. It has no
// clock and does no I/O: the caller passes the reading of a clock that does not
// go back, runs the transactions that Next returns, and sends the responses.
// Messages that arrive during a transaction form the next batch, so batches grow
// with the load, and a message waits for no other if no transaction runs. Accounts
// take turns: if more messages wait than a batch takes, an account with many of
// them does not delay the others.
//
// It is not safe for concurrent use, except that Transaction.Decide may run
// while messages are added.
type Batcher struct {
	cfg      BatcherConfig
	arrivals int64
	queue    turns
	pending  []*message
	// unanswered has the requests without a response, by their number. A repeated request is not decided again, but gets
	// the response of the first: while the control plane is slow, most messages are repetitions.
	unanswered       map[requestNumber]*message
	running, stopped bool
}

// requestNumber identifies a lease request. The boot id is part of it: otherwise a proxy that guesses the session and the
// number of another could have its own message, which is refused, decided in the place of the other's.
type requestNumber struct {
	RequestKey
	bootID string
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
	// state is the state of a pending request after its last committed transaction.
	state PendingRequest
	// waits means that the request is pending: for answers to a recall if recalling is set, otherwise for running requests.
	// At until it may not wait any longer. At retryAt, which is interval after the last attempt, it is decided again.
	waits, recalling         bool
	until, retryAt, interval time.Duration
}

// Transaction is one batch of messages that a database transaction decides.
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
	returned  wire.ReturnResponse
	state     PendingRequest
	recalling bool
}

// NewBatcher returns a Batcher without messages.
func NewBatcher(cfg BatcherConfig) *Batcher {
	if cfg.RefusalGrace == 0 {
		cfg.RefusalGrace = RefusalGrace
	}

	return &Batcher{cfg: cfg, queue: turns{accounts: map[string]*accountTurn{}}, unanswered: map[requestNumber]*message{}}
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

// AddReturn queues a return. The result and respond are as in AddRequest.
func (b *Batcher) AddReturn(ret *wire.Return, respond func(wire.ReturnResponse)) bool {
	return b.add(&message{ret: ret, returned: respond}) != nil
}

func (b *Batcher) add(m *message) *message {
	if b.stopped || b.queue.length >= b.cfg.MaxQueue || !b.queue.add(m, max(b.cfg.MaxQueue/4, 1)) {
		return nil
	}
	b.arrivals++
	m.arrival = b.arrivals
	return m
}

// from returns the session that sent a message, and the account that it is about.
func (m *message) from() (wire.SessionID, string) {
	if m.ret != nil {
		return m.ret.Session, m.ret.Account
	}
	return m.request.Session, m.request.Account
}

func numberOf(r *wire.LeaseRequest) requestNumber {
	return requestNumber{RequestKey{r.Session, r.Account}, r.BootID, r.Number}
}

// Next returns the transaction to run now, or nil and the time at which Next
// must be called again if no message comes before. While a transaction runs,
// until its Commit or Fail, it returns none.
func (b *Batcher) Next(now time.Duration) (tx *Transaction, wake time.Duration) {
	if b.running || b.stopped {
		return nil, Never
	}

	batch := b.queue.take(b.cfg.MaxBatch)
	messages := append(b.takeReady(batch, now), batch...)
	if len(messages) == 0 {
		wake = Never
		for _, m := range b.pending {
			wake = min(wake, m.retryAt)
		}
		return nil, wake
	}

	b.running = true
	return &Transaction{
		batcher:  b,
		at:       now,
		messages: messages,
		outcomes: make([]outcome, len(messages)),
	}, Never
}

// takeReady removes and returns the pending requests that are decided again:
// those that are due, and those of accounts that return units in the batch. They
// are in the order of their arrival, and are decided before the batch.
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
		if returning[m.request.Account] || now >= m.retryAt {
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
// their order. It is called within the database transaction, once for each
// attempt of it.
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
	o.state.ResendRecall = m.waits && t.at >= m.retryAt
	o.response, o.recalling = d.Decide(m.request, &o.state, func(b *Batch) {
		if t.batcher.cfg.Escrow {
			t.batcher.cfg.Policy.Apply(b.Allocator, b.LiveProxies, m.request, t.at)
		}
	})
	return o
}

// Commit records that the database transaction has committed. It returns
// functions that send the responses, each to be called once, and the recalls to
// send. A recall that is lost is sent again as long as a request waits for it.
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
// commit. It returns functions that send the responses. The proxies repeat their
// messages then; if the transaction was committed, they get the stored results.
func (b *Batcher) Fail(t *Transaction) []func() {
	b.running = false
	return b.unavailable(t.messages)
}

// Stop makes the Batcher accept no more messages. It returns functions that send
// the responses to all waiting messages.
func (b *Batcher) Stop() []func() {
	b.stopped = true
	responses := append(b.unavailable(b.pending), b.unavailable(b.queue.take(b.queue.length))...)
	b.pending = nil
	return responses
}

func (b *Batcher) unavailable(messages []*message) []func() {
	var responses []func()
	for _, m := range messages {
		if m.ret != nil {
			responses = append(responses, m.answerReturn(wire.ReturnResponse{V: wire.Version, Status: wire.Unavailable}))
		} else {
			responses = append(responses, b.answer(m, Unavailable(m.request)))
		}
	}
	return responses
}

// Exceeds reports whether a message has more reports or needs than a session
// sends in one message. It must not be queued: the work of a transaction grows with
// them, and other messages wait for it.
func Exceeds(reports []wire.LeaseReport, needs [][]wire.Need) bool {
	return len(reports) > wire.MaxReports || len(needs) > wire.MaxWaiters ||
		slices.ContainsFunc(needs, func(request []wire.Need) bool { return len(request) > wire.MaxNeeds })
}

// TooLarge returns the response to a lease request that exceeds the bounds.
func TooLarge(r *wire.LeaseRequest) wire.LeaseResponse {
	return wire.LeaseResponse{V: wire.Version, Number: r.Number, Status: wire.TooLarge}
}

// Unavailable returns the response to a lease request that cannot be decided
// now.
func Unavailable(r *wire.LeaseRequest) wire.LeaseResponse {
	return wire.LeaseResponse{V: wire.Version, Number: r.Number, Status: wire.Unavailable}
}

func (m *message) answerReturn(response wire.ReturnResponse) func() {
	return func() { m.returned(response) }
}

func (b *Batcher) answer(m *message, response wire.LeaseResponse) func() {
	delete(b.unanswered, numberOf(m.request))
	return func() {
		for _, respond := range m.responses {
			respond(response)
		}
	}
}

// wait makes a request pending, for answers to a recall or for running requests.
// If it waited for the other of the two before, the full time begins again.
func (b *Batcher) wait(m *message, recalling bool, now time.Duration) {
	switch {
	case !m.waits || m.recalling != recalling:
		m.recalling, m.until, m.interval = recalling, now+b.cfg.RefusalGrace, b.cfg.RefusalGrace
		if recalling {
			m.until, m.interval = now+RecallTimeout, recallInterval
		}
	case now >= m.retryAt:
		m.interval *= 2
	}
	m.waits, m.retryAt = true, min(now+m.interval, m.until)
	b.pending = append(b.pending, m)
}
