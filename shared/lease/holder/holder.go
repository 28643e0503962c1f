package holder

import (
	"modelgateway/shared/wire"
	"slices"
)

// maxWaiters bounds the requests of one Op.
const maxWaiters = 64

// Ticket is one request's place in a Holder: waiting, then granted, refused or
// lost. Its owner calls Finish once if it was granted, or Cancel to stop
// waiting.
type Waiter struct {
	needs    []wire.Need
	state    waiterState
	decision wire.Decision
}

type waiterState uint8

const (
	waiting waiterState = iota
	cancelled
	prefetching // no request's: it stands for those to come
	granted
	refused
	aborted
	finished
)

// wanted tells that someone waits for the decision.
func (t *Waiter) wanted() bool { return t.state == waiting }

// Granted tells that the request may run.
func (t *Waiter) Granted() bool { return t.state == granted }

// Refused tells that the request was refused, and Decision why.
func (t *Waiter) Refused() bool { return t.state == refused }

// Lost tells that the session ended before a decision.
func (t *Waiter) Aborted() bool { return t.state == aborted }

// Decision is the control plane's answer, once there is one.
func (t *Waiter) Decision() wire.Decision { return t.decision }

// holding is the proxy's side of one lease.
type lease struct {
	kind       wire.Kind
	generation int64
	central    bool
	// g is the greatest grant read, r the total returned, charged the costs of finished requests, running what
	// unfinished ones hold.
	granted, returned, charged, running int64
	// slice is what was idle after the last answer: when half of it is used up, more is asked for.
	allotment int64
	// confirmed is the returned total that the control plane is known to have; owed asks for a Return regardless.
	confirmed int64
	owed      bool
	// unsure tells that a Return was sent for a recall while an Op was under way: it counts for nothing if the answer to
	// that grants something.
	unconfirmed bool
}

func (h *lease) idle() int64 { return h.granted - h.returned - h.charged - h.running }

// Holder is the proxy's side of the protocol for one account in one session.
// It is not safe for concurrent use: its caller holds a lock and does the
// sending. A Holder is kept as long as its session, for its totals only grow.
type Holder struct {
	session wire.SessionID
	bootID  string
	account string
	pools   map[wire.PoolID]*lease
	queue   []*Waiter
	// op is the one under way with the tickets that it asks for; ret the Return under way.
	request *wire.LeaseRequest
	asking  []*Waiter
	ret     *wire.Return
	// ahead holds the needs of one request when a slice runs low: the Op for it is sent before anyone has to wait.
	prefetch   []wire.Need
	lastNumber int64
	// trusted is the first op whose answer may say that idle units may be held.
	escrowFrom int64
	running    int
}

// NewHolder returns the Holder of an account in a session.
func NewHolder(session wire.SessionID, boot, account string) *Holder {
	return &Holder{session: session, bootID: boot, account: account, pools: map[wire.PoolID]*lease{}}
}

func (h *Holder) holding(n wire.Need) *lease {
	p := h.pools[n.Pool]
	if p == nil {
		p = &lease{kind: n.Kind, generation: 1, central: true}
		h.pools[n.Pool] = p
	}
	return p
}

// Running is the number of granted requests that have not finished.
func (h *Holder) Running() int { return h.running }

// Ask asks for the needs of one request. The ticket is granted at once when
// every pool has idle units and no one waits; else it queues.
func (h *Holder) Reserve(needs []wire.Need) *Waiter {
	t := &Waiter{needs: needs}
	covered := h.covered(needs)
	if covered && len(h.queue) == 0 && !h.requestPending() {
		h.grant(t)
		h.notePrefetch(needs)
		return t
	}
	h.queue = append(h.queue, t)
	return t
}

// asked tells whether the Op under way asks for someone who waits: nobody is
// admitted before them.
func (h *Holder) requestPending() bool {
	return slices.ContainsFunc(h.asking, (*Waiter).wanted)
}

// lookAhead notes that a slice runs low.
func (h *Holder) notePrefetch(needs []wire.Need) {
	for _, n := range needs {
		if p := h.pools[n.Pool]; h.request == nil && p.idle() < p.allotment/2 {
			h.prefetch = needs
		}
	}
}

// Low tells that there is an Op to send although no one waits.
func (h *Holder) WantsPrefetch() bool { return h.prefetch != nil }

// covered tells whether every pool has idle units enough and may be drawn on
// without asking.
func (h *Holder) covered(needs []wire.Need) bool {
	all := true
	for _, n := range needs {
		p := h.holding(n)
		all = all && !p.central && p.idle() >= n.Amount
	}
	return all
}

func (h *Holder) grant(t *Waiter) {
	for _, n := range t.needs {
		h.holding(n).running += n.Amount
	}
	t.state = granted
	h.running++
}

// NextOp returns the Op to send, or nil: none is sent while one is under way
// or no one waits. The same Op is sent again until Answer takes its reply.
//
// An Op of those who wait carries back what is idle of every pool. No one is
// admitted from it before the answer, which grants all that is needed anew:
// otherwise the pool that never runs short would pile up with every Op for the
// one that does. An Op that is sent ahead carries back what is beyond half a
// slice, for requests are admitted meanwhile.
func (h *Holder) NextRequest() *wire.LeaseRequest {
	if h.request != nil || (len(h.queue) == 0 && h.prefetch == nil) {
		return nil
	}
	n := min(len(h.queue), maxWaiters)
	h.asking, h.queue = slices.Clone(h.queue[:n]), slices.Delete(h.queue, 0, n)
	if n == 0 { // what is granted to someone who does not wait is idle
		h.asking = []*Waiter{{needs: h.prefetch, state: prefetching}}
		h.returnSurplus()
	} else {
		h.ReturnIdle()
	}
	h.prefetch = nil
	h.lastNumber++
	h.request = &wire.LeaseRequest{V: wire.Version, Session: h.session, BootID: h.bootID, Account: h.account, Number: h.lastNumber, Prefetch: n == 0, Reports: h.views(func(*lease) bool { return true })}
	for _, t := range h.asking {
		h.request.Needs = append(h.request.Needs, t.needs)
	}
	return h.request
}

func (h *Holder) views(want func(*lease) bool) []wire.LeaseReport {
	var views []wire.LeaseReport
	for id, p := range h.pools {
		if want(p) {
			views = append(views, wire.LeaseReport{Pool: id, Generation: p.generation, GrantedSeen: p.granted, Returned: p.returned})
		}
	}
	slices.SortFunc(views, func(a, b wire.LeaseReport) int { return int(a.Pool - b.Pool) })
	return views
}

// Answer takes the reply to the Op under way and returns the tickets that are
// decided: those that it asked for, and those behind them that a slice covers.
// A reply to another Op, and one that decides nothing, changes nothing.
func (h *Holder) HandleResponse(r *wire.LeaseResponse) []*Waiter {
	if h.request == nil || (r.Status == wire.Done && (r.Number != h.request.Number || len(r.Decisions) != len(h.asking))) {
		return nil
	}
	switch r.Status {
	case wire.Fenced:
		return h.AbortWaiters()
	case wire.Done:
	default:
		return nil
	}
	h.confirm(h.request.Reports)
	for _, g := range r.Leases {
		if p := h.pools[g.Pool]; p != nil {
			p.owed = p.owed || (p.unconfirmed && g.Granted > p.granted)
			p.granted, p.unconfirmed = max(p.granted, g.Granted), false
			if g.Generation >= p.generation && (g.Central || r.Number >= h.escrowFrom) {
				p.generation, p.central = g.Generation, g.Central
			}
		}
	}
	decided := h.asking
	h.request, h.asking = nil, nil
	for i, t := range decided {
		switch {
		case !t.wanted(): // what was granted for it is idle now
		case r.Decisions[i].Granted:
			h.grant(t)
		default:
			t.state, t.decision = refused, r.Decisions[i]
		}
	}
	for _, p := range h.pools {
		p.allotment = max(p.idle(), 0)
	}
	decided = append(slices.DeleteFunc(decided, func(t *Waiter) bool { return t.state == cancelled || t.state == prefetching }), h.admitQueued()...)
	h.returnIdleOfCentral()
	return decided
}

// admitQueued grants, in their order, those that came while an Op was under
// way and are covered, by what it brought first of all: else under load there
// always would be someone to ask for, and slices never used.
func (h *Holder) admitQueued() []*Waiter {
	n := 0
	for ; n < len(h.queue) && h.covered(h.queue[n].needs); n++ {
		h.grant(h.queue[n])
	}
	admitted := slices.Clone(h.queue[:n])
	h.queue = slices.Delete(h.queue, 0, n)
	return admitted
}

// Lose ends all waiting, because the session is over, and returns the tickets
// that were waiting. Granted ones go on and finish as ever.
func (h *Holder) AbortWaiters() []*Waiter {
	tickets := slices.Concat(h.asking, h.queue)
	h.request, h.asking, h.queue, h.prefetch = nil, nil, nil, nil
	tickets = slices.DeleteFunc(tickets, func(t *Waiter) bool { return !t.wanted() })
	for _, t := range tickets {
		t.state = aborted
	}
	return tickets
}

// Cancel stops a ticket from waiting. It returns false when the ticket was
// granted already and has to be finished, and the tickets that waited for this
// one alone, which are granted: while an Op is not answered, one after the
// other would wait in vain behind those who give up.
func (h *Holder) Cancel(t *Waiter) (gone bool, admitted []*Waiter) {
	if t.state != waiting {
		return t.state != granted, nil
	}
	t.state = cancelled
	h.queue = slices.DeleteFunc(h.queue, func(q *Waiter) bool { return q == t })
	if !h.requestPending() {
		admitted = h.admitQueued()
	}
	return true, admitted
}

// Finish ends a granted request with its cost, in nano-units. A second Finish
// changes nothing.
func (h *Holder) Release(t *Waiter, cost int64) {
	if t.state != granted {
		return
	}
	t.state = finished
	h.running--
	for _, n := range t.needs {
		p := h.pools[n.Pool]
		p.running -= n.Amount
		if n.Kind != wire.Slots {
			p.charged += cost
		}
	}
	h.returnIdleOfCentral()
}

// giveBack counts the idle units of central pools as returned.
func (h *Holder) returnIdleOfCentral() {
	for _, p := range h.pools {
		if idle := p.idle(); p.central && idle > 0 {
			p.returned += idle
		}
	}
}

// Recall turns a pool central: what is idle goes back, and an answer is owed
// even when nothing is.
func (h *Holder) HandleRecall(pool wire.PoolID, gen int64) {
	p := h.pools[pool]
	if p == nil || gen < p.generation {
		return
	}
	p.generation, p.central, p.owed = gen, true, true
	h.returnIdleOfCentral()
}

// ReturnIdle gives back what is idle, when no request has come for a while.
func (h *Holder) ReturnIdle() {
	for _, p := range h.pools {
		if idle := p.idle(); idle > 0 {
			p.returned += idle
		}
	}
}

// returnSurplus gives back what is idle beyond half a slice.
func (h *Holder) returnSurplus() {
	for _, p := range h.pools {
		if surplus := p.idle() - p.allotment/2; surplus > 0 {
			p.returned += surplus
		}
	}
}

// Distrust gives back everything idle and holds nothing idle any more until
// the control plane says again that it may, in answer to an op that is sent
// after this: what it has may have been taken away. The generation is left as
// it is: a recall that comes later must not be answered by what was said before.
func (h *Holder) DisableEscrow() {
	for _, p := range h.pools {
		p.central = true
	}
	h.escrowFrom = h.lastNumber + 1
	h.returnIdleOfCentral()
}

// Restate has everything told again that the control plane was told before:
// Postgres has lost commits.
func (h *Holder) Resync() {
	for _, p := range h.pools {
		p.confirmed, p.owed = 0, p.owed || p.granted > 0
	}
}

// Position is how a Holder stands to one pool.
type LeaseView struct {
	Generation int64
	Central    bool
	// G is the greatest grant read, R the total returned, Charged the costs of finished requests, Running what
	// unfinished ones hold.
	Granted, Returned, Charged, Running int64
}

// Position tells how the Holder stands to a pool.
func (h *Holder) LeaseView(pool wire.PoolID) LeaseView {
	p := h.pools[pool]
	if p == nil {
		return LeaseView{}
	}
	return LeaseView{Generation: p.generation, Central: p.central, Granted: p.granted, Returned: p.returned, Charged: p.charged, Running: p.running}
}

// Held is what running requests hold of a pool.
func (h *Holder) Reserved(pool wire.PoolID) int64 {
	if p := h.pools[pool]; p != nil {
		return p.running
	}
	return 0
}

// NextReturn returns the Return to send, or nil: none is sent while one is
// under way, or when nothing is to be said that the Op under way does not say
// already. What has come back since that was sent is said at once: the Op may
// be waiting for it. The same Return is sent again until Returned.
func (h *Holder) NextReturn() *wire.Return {
	if h.ret != nil {
		return nil
	}
	carried := map[*lease]int64{}
	if h.request != nil {
		for _, v := range h.request.Reports {
			carried[h.pools[v.Pool]] = v.Returned
		}
	}
	views := h.views(func(p *lease) bool { return p.owed || p.returned > max(p.confirmed, carried[p]) })
	if len(views) == 0 {
		return nil
	}
	h.ret = &wire.Return{V: wire.Version, Session: h.session, BootID: h.bootID, Account: h.account, Reports: views}
	return h.ret
}

// Returned takes note that the Return under way has arrived, or that the
// session is closed and takes none.
func (h *Holder) ReturnDelivered() {
	if h.ret == nil {
		return
	}
	h.confirm(h.ret.Reports)
	h.ret = nil
}

func (h *Holder) confirm(views []wire.LeaseReport) {
	for _, v := range views {
		p := h.pools[v.Pool]
		p.confirmed = max(p.confirmed, v.Returned)
		if p.owed && v.Generation == p.generation && v.GrantedSeen == p.granted {
			p.owed, p.unconfirmed = false, h.request != nil
		}
	}
}
