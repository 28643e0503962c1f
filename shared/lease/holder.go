package lease

import "slices"

// maxWaiters bounds the requests of one Op.
const maxWaiters = 64

// Ticket is one request's place in a Holder: waiting, then granted, refused or
// lost. Its owner calls Finish once if it was granted, or Cancel to stop
// waiting.
type Ticket struct {
	needs    []Need
	state    ticketState
	decision Decision
}

type ticketState uint8

const (
	waiting ticketState = iota
	cancelled
	ahead // no request's: it stands for those to come
	granted
	refused
	lost
	finished
)

// wanted tells that someone waits for the decision.
func (t *Ticket) wanted() bool { return t.state == waiting }

// Granted tells that the request may run.
func (t *Ticket) Granted() bool { return t.state == granted }

// Refused tells that the request was refused, and Decision why.
func (t *Ticket) Refused() bool { return t.state == refused }

// Lost tells that the session ended before a decision.
func (t *Ticket) Lost() bool { return t.state == lost }

// Decision is the control plane's answer, once there is one.
func (t *Ticket) Decision() Decision { return t.decision }

// holding is the proxy's side of one lease.
type holding struct {
	kind    Kind
	gen     int64
	central bool
	// g is the greatest grant read, r the total returned, charged the costs of finished requests, running what
	// unfinished ones hold.
	g, r, charged, running int64
	// slice is what was idle after the last answer: when half of it is used up, more is asked for.
	slice int64
	// confirmed is the returned total that the control plane is known to have; owed asks for a Return regardless.
	confirmed int64
	owed      bool
	// unsure tells that a Return was sent for a recall while an Op was under way: it counts for nothing if the answer to
	// that grants something.
	unsure bool
}

func (h *holding) idle() int64 { return h.g - h.r - h.charged - h.running }

// Holder is the proxy's side of the protocol for one account in one session.
// It is not safe for concurrent use: its caller holds a lock and does the
// sending. A Holder is kept as long as its session, for its totals only grow.
type Holder struct {
	session SessionID
	boot    string
	account string
	pools   map[PoolID]*holding
	queue   []*Ticket
	// op is the one under way with the tickets that it asks for; ret the Return under way.
	op     *Op
	asking []*Ticket
	ret    *Return
	// ahead holds the needs of one request when a slice runs low: the Op for it is sent before anyone has to wait.
	ahead  []Need
	lastNo int64
	// trusted is the first op whose answer may say that idle units may be held.
	trusted int64
	running int
}

// NewHolder returns the Holder of an account in a session.
func NewHolder(session SessionID, boot, account string) *Holder {
	return &Holder{session: session, boot: boot, account: account, pools: map[PoolID]*holding{}}
}

func (h *Holder) holding(n Need) *holding {
	p := h.pools[n.Pool]
	if p == nil {
		p = &holding{kind: n.Kind, gen: 1, central: true}
		h.pools[n.Pool] = p
	}
	return p
}

// Running is the number of granted requests that have not finished.
func (h *Holder) Running() int { return h.running }

// Ask asks for the needs of one request. The ticket is granted at once when
// every pool has idle units and no one waits; else it queues.
func (h *Holder) Ask(needs []Need) *Ticket {
	t := &Ticket{needs: needs}
	covered := h.covered(needs)
	if covered && len(h.queue) == 0 && !h.asked() {
		h.grant(t)
		h.lookAhead(needs)
		return t
	}
	h.queue = append(h.queue, t)
	return t
}

// asked tells whether the Op under way asks for someone who waits: nobody is
// admitted before them.
func (h *Holder) asked() bool {
	return slices.ContainsFunc(h.asking, (*Ticket).wanted)
}

// lookAhead notes that a slice runs low.
func (h *Holder) lookAhead(needs []Need) {
	for _, n := range needs {
		if p := h.pools[n.Pool]; h.op == nil && p.idle() < p.slice/2 {
			h.ahead = needs
		}
	}
}

// Low tells that there is an Op to send although no one waits.
func (h *Holder) Low() bool { return h.ahead != nil }

// covered tells whether every pool has idle units enough and may be drawn on
// without asking.
func (h *Holder) covered(needs []Need) bool {
	all := true
	for _, n := range needs {
		p := h.holding(n)
		all = all && !p.central && p.idle() >= n.Amount
	}
	return all
}

func (h *Holder) grant(t *Ticket) {
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
func (h *Holder) NextOp() *Op {
	if h.op != nil || (len(h.queue) == 0 && h.ahead == nil) {
		return nil
	}
	n := min(len(h.queue), maxWaiters)
	h.asking, h.queue = slices.Clone(h.queue[:n]), slices.Delete(h.queue, 0, n)
	if n == 0 { // what is granted to someone who does not wait is idle
		h.asking = []*Ticket{{needs: h.ahead, state: ahead}}
		h.returnSurplus()
	} else {
		h.ReturnIdle()
	}
	h.ahead = nil
	h.lastNo++
	h.op = &Op{V: Version, Session: h.session, Boot: h.boot, Account: h.account, No: h.lastNo, Ahead: n == 0, Views: h.views(func(*holding) bool { return true })}
	for _, t := range h.asking {
		h.op.Needs = append(h.op.Needs, t.needs)
	}
	return h.op
}

func (h *Holder) views(want func(*holding) bool) []View {
	var views []View
	for id, p := range h.pools {
		if want(p) {
			views = append(views, View{Pool: id, Gen: p.gen, GSeen: p.g, R: p.r})
		}
	}
	slices.SortFunc(views, func(a, b View) int { return int(a.Pool - b.Pool) })
	return views
}

// Answer takes the reply to the Op under way and returns the tickets that are
// decided: those that it asked for, and those behind them that a slice covers.
// A reply to another Op, and one that decides nothing, changes nothing.
func (h *Holder) Answer(r *OpReply) []*Ticket {
	if h.op == nil || (r.Status == Done && (r.No != h.op.No || len(r.Decisions) != len(h.asking))) {
		return nil
	}
	switch r.Status {
	case Fenced:
		return h.Lose()
	case Done:
	default:
		return nil
	}
	h.confirm(h.op.Views)
	for _, g := range r.Grants {
		if p := h.pools[g.Pool]; p != nil {
			p.owed = p.owed || (p.unsure && g.G > p.g)
			p.g, p.unsure = max(p.g, g.G), false
			if g.Gen >= p.gen && (g.Central || r.No >= h.trusted) {
				p.gen, p.central = g.Gen, g.Central
			}
		}
	}
	decided := h.asking
	h.op, h.asking = nil, nil
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
		p.slice = max(p.idle(), 0)
	}
	decided = append(slices.DeleteFunc(decided, func(t *Ticket) bool { return t.state == cancelled || t.state == ahead }), h.admitQueued()...)
	h.giveBack()
	return decided
}

// admitQueued grants, in their order, those that came while an Op was under
// way and are covered, by what it brought first of all: else under load there
// always would be someone to ask for, and slices never used.
func (h *Holder) admitQueued() []*Ticket {
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
func (h *Holder) Lose() []*Ticket {
	tickets := slices.Concat(h.asking, h.queue)
	h.op, h.asking, h.queue, h.ahead = nil, nil, nil, nil
	tickets = slices.DeleteFunc(tickets, func(t *Ticket) bool { return !t.wanted() })
	for _, t := range tickets {
		t.state = lost
	}
	return tickets
}

// Cancel stops a ticket from waiting. It returns false when the ticket was
// granted already and has to be finished, and the tickets that waited for this
// one alone, which are granted: while an Op is not answered, one after the
// other would wait in vain behind those who give up.
func (h *Holder) Cancel(t *Ticket) (gone bool, admitted []*Ticket) {
	if t.state != waiting {
		return t.state != granted, nil
	}
	t.state = cancelled
	h.queue = slices.DeleteFunc(h.queue, func(q *Ticket) bool { return q == t })
	if !h.asked() {
		admitted = h.admitQueued()
	}
	return true, admitted
}

// Finish ends a granted request with its cost, in nano-units. A second Finish
// changes nothing.
func (h *Holder) Finish(t *Ticket, cost int64) {
	if t.state != granted {
		return
	}
	t.state = finished
	h.running--
	for _, n := range t.needs {
		p := h.pools[n.Pool]
		p.running -= n.Amount
		if n.Kind != Slots {
			p.charged += cost
		}
	}
	h.giveBack()
}

// giveBack counts the idle units of central pools as returned.
func (h *Holder) giveBack() {
	for _, p := range h.pools {
		if idle := p.idle(); p.central && idle > 0 {
			p.r += idle
		}
	}
}

// Recall turns a pool central: what is idle goes back, and an answer is owed
// even when nothing is.
func (h *Holder) Recall(pool PoolID, gen int64) {
	p := h.pools[pool]
	if p == nil || gen < p.gen {
		return
	}
	p.gen, p.central, p.owed = gen, true, true
	h.giveBack()
}

// ReturnIdle gives back what is idle, when no request has come for a while.
func (h *Holder) ReturnIdle() {
	for _, p := range h.pools {
		if idle := p.idle(); idle > 0 {
			p.r += idle
		}
	}
}

// returnSurplus gives back what is idle beyond half a slice.
func (h *Holder) returnSurplus() {
	for _, p := range h.pools {
		if surplus := p.idle() - p.slice/2; surplus > 0 {
			p.r += surplus
		}
	}
}

// Distrust gives back everything idle and holds nothing idle any more until
// the control plane says again that it may, in answer to an op that is sent
// after this: what it has may have been taken away. The generation is left as
// it is: a recall that comes later must not be answered by what was said before.
func (h *Holder) Distrust() {
	for _, p := range h.pools {
		p.central = true
	}
	h.trusted = h.lastNo + 1
	h.giveBack()
}

// Restate has everything told again that the control plane was told before:
// Postgres has lost commits.
func (h *Holder) Restate() {
	for _, p := range h.pools {
		p.confirmed, p.owed = 0, p.owed || p.g > 0
	}
}

// Position is how a Holder stands to one pool.
type Position struct {
	Gen     int64
	Central bool
	// G is the greatest grant read, R the total returned, Charged the costs of finished requests, Running what
	// unfinished ones hold.
	G, R, Charged, Running int64
}

// Position tells how the Holder stands to a pool.
func (h *Holder) Position(pool PoolID) Position {
	p := h.pools[pool]
	if p == nil {
		return Position{}
	}
	return Position{Gen: p.gen, Central: p.central, G: p.g, R: p.r, Charged: p.charged, Running: p.running}
}

// Held is what running requests hold of a pool.
func (h *Holder) Held(pool PoolID) int64 {
	if p := h.pools[pool]; p != nil {
		return p.running
	}
	return 0
}

// NextReturn returns the Return to send, or nil: none is sent while one is
// under way, or when nothing is to be said that the Op under way does not say
// already. What has come back since that was sent is said at once: the Op may
// be waiting for it. The same Return is sent again until Returned.
func (h *Holder) NextReturn() *Return {
	if h.ret != nil {
		return nil
	}
	carried := map[*holding]int64{}
	if h.op != nil {
		for _, v := range h.op.Views {
			carried[h.pools[v.Pool]] = v.R
		}
	}
	views := h.views(func(p *holding) bool { return p.owed || p.r > max(p.confirmed, carried[p]) })
	if len(views) == 0 {
		return nil
	}
	h.ret = &Return{V: Version, Session: h.session, Boot: h.boot, Account: h.account, Views: views}
	return h.ret
}

// Returned takes note that the Return under way has arrived, or that the
// session is closed and takes none.
func (h *Holder) Returned() {
	if h.ret == nil {
		return
	}
	h.confirm(h.ret.Views)
	h.ret = nil
}

func (h *Holder) confirm(views []View) {
	for _, v := range views {
		p := h.pools[v.Pool]
		p.confirmed = max(p.confirmed, v.R)
		if p.owed && v.Gen == p.gen && v.GSeen == p.g {
			p.owed, p.unsure = false, h.op != nil
		}
	}
}
