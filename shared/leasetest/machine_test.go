package leasetest

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/lease/holder"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/lease/settlement"
	"modelgateway/shared/wire"
)

const (
	account = "account"
	balance = wire.PoolID(1)
	limit   = wire.PoolID(2)
	slots   = wire.PoolID(3)
)

// machine is one account's pools with the sessions of some proxies. Messages
// are never taken away: each can be delivered at any time, again and again.
type machine struct {
	book    *allocator.Allocator
	tenures map[wire.SessionID]*session.Record
	results map[allocator.RequestKey]*allocator.Result
	stays   map[*wire.LeaseRequest]*allocator.PendingRequest
	proxies []*proxy

	ops     []*wire.LeaseRequest
	replies []reply
	returns []*wire.Return
	recalls []recall
	events  []settlement.Charge
	settled map[[16]byte]bool
	spent   int64
	next    byte
	serial  byte
	before  map[allocator.LeaseKey]allocator.Lease
	gens    map[wire.PoolID]int64
}

type proxy struct {
	id      wire.SessionID
	holder  *holder.Holder
	waiting []*holder.Waiter
	running []*holder.Waiter
	ret     *wire.Return
}

type reply struct {
	session wire.SessionID
	reply   wire.LeaseResponse
}

type recall struct {
	session wire.SessionID
	recall  wire.Recall
}

func newMachine(t *rapid.T) *machine {
	m := &machine{
		book: allocator.New(), tenures: map[wire.SessionID]*session.Record{}, results: map[allocator.RequestKey]*allocator.Result{}, stays: map[*wire.LeaseRequest]*allocator.PendingRequest{},
		settled: map[[16]byte]bool{}, before: map[allocator.LeaseKey]allocator.Lease{}, gens: map[wire.PoolID]int64{},
	}
	for id, kind := range map[wire.PoolID]wire.Kind{balance: wire.Balance, limit: wire.KeyLimit, slots: wire.Slots} {
		m.book.Pools[id] = &allocator.Pool{ID: id, Kind: kind, Central: true, Generation: 1}
	}
	m.book.Pools[balance].Adjust(rapid.Int64Range(0, 5000).Draw(t, "balance"))
	m.book.Pools[limit].Adjust(rapid.Int64Range(0, 5000).Draw(t, "limit"))
	m.book.Pools[slots].Adjust(rapid.Int64Range(1, 30).Draw(t, "slots"))
	m.open()
	return m
}

func (m *machine) open() {
	id := wire.SessionID(len(m.proxies) + 1)
	m.tenures[id] = &session.Record{ID: id, BootID: "boot", State: session.Active, Remaining: time.Second}
	m.proxies = append(m.proxies, &proxy{id: id, holder: holder.NewHolder(id, "boot", account)})
}

func (m *machine) docket() *allocator.Batch {
	m.book.Recalls = map[wire.PoolID]string{}
	for id, t := range m.tenures {
		m.book.EndedSessions[id] = !t.MayAdmit()
	}
	return &allocator.Batch{Allocator: m.book, Sessions: m.tenures, Results: m.results, LiveSessions: int64(len(m.proxies))}
}

func pick[T any](t *rapid.T, name string, from []T) T {
	if len(from) == 0 {
		t.Skip("none")
	}
	return from[rapid.IntRange(0, len(from)-1).Draw(t, name)]
}

// openSession registers one more proxy.
func (m *machine) openSession(t *rapid.T) {
	if len(m.proxies) >= 5 {
		t.Skip("enough")
	}
	m.open()
}

// ask has a client ask a proxy.
func (m *machine) ask(t *rapid.T) {
	p := pick(t, "proxy", m.proxies)
	amount := rapid.Int64Range(1, 400).Draw(t, "amount")
	ticket := p.holder.Reserve([]wire.Need{
		{Pool: balance, Kind: wire.Balance, Amount: amount}, {Pool: limit, Kind: wire.KeyLimit, Amount: amount}, {Pool: slots, Kind: wire.Slots, Amount: 1},
	})
	if ticket.Granted() {
		p.running = append(p.running, ticket)
	} else {
		p.waiting = append(p.waiting, ticket)
	}
}

// send puts what a proxy has to say on its way.
func (m *machine) send(t *rapid.T) {
	p := pick(t, "proxy", m.proxies)
	if op := p.holder.NextRequest(); op != nil {
		m.ops = append(m.ops, op)
	}
	if ret := p.holder.NextReturn(); ret != nil {
		p.ret = ret
		m.returns = append(m.returns, ret)
	}
}

// deliverOp delivers any op that was ever sent.
func (m *machine) deliverOp(t *rapid.T) {
	op := pick(t, "op", m.ops)
	d := m.docket()
	stay := m.stays[op]
	if stay == nil {
		stay = &allocator.PendingRequest{}
		m.stays[op] = stay
	}
	stay.MayWait, stay.ResendRecall = rapid.Bool().Draw(t, "patience"), rapid.Bool().Draw(t, "due")
	answer, _ := d.Decide(op, stay, func() {
		if rapid.IntRange(0, 3).Draw(t, "calm") == 0 {
			m.book.Pools[balance].EnterEscrow()
		}
	})
	for session, recalls := range m.book.ToRecall() {
		for _, r := range recalls {
			m.recalls = append(m.recalls, recall{session, r})
		}
	}
	if answer != nil {
		m.replies = append(m.replies, reply{op.Session, *answer})
	}
}

// deliverReply delivers any reply that was ever made to its proxy.
func (m *machine) deliverReply(t *rapid.T) {
	r := pick(t, "reply", m.replies)
	p := m.proxies[r.session-1]
	if r.reply.Status == wire.Fenced && m.tenures[r.session].CanRequest() {
		t.Skip("a fenced reply to a session that is not over cannot be")
	}
	for _, ticket := range p.holder.HandleResponse(&r.reply) {
		if ticket.Granted() {
			p.running = append(p.running, ticket)
		}
	}
}

// deliverReturn delivers any return that was ever sent.
func (m *machine) deliverReturn(t *rapid.T) {
	ret := pick(t, "return", m.returns)
	status := m.docket().ApplyReturn(ret)
	if p := m.proxies[ret.Session-1]; p.ret == ret && status != wire.Unavailable && rapid.Bool().Draw(t, "answered") {
		p.holder.ReturnDelivered()
		p.ret = nil
	}
}

// deliverRecall delivers any recall that was ever sent.
func (m *machine) deliverRecall(t *rapid.T) {
	r := pick(t, "recall", m.recalls)
	m.proxies[r.session-1].holder.HandleRecall(r.recall.Pool, r.recall.Generation)
}

// finish ends a request with a cost that may be above what it reserved.
func (m *machine) finish(t *rapid.T) {
	p := pick(t, "proxy", m.proxies)
	ticket := pick(t, "request", p.running)
	cost := rapid.Int64Range(0, 600).Draw(t, "cost")
	p.running = remove(p.running, ticket)
	p.holder.Release(ticket, cost)
	m.event(p.id, cost)
}

func (m *machine) event(session wire.SessionID, cost int64) {
	m.next++
	if m.next == 0 {
		m.serial++
	}
	m.events = append(m.events, settlement.Charge{Request: [16]byte{m.serial, m.next}, Session: session, Cost: cost, Pools: [2]wire.PoolID{balance, limit}})
}

func remove(tickets []*holder.Waiter, gone *holder.Waiter) []*holder.Waiter {
	for i, t := range tickets {
		if t == gone {
			return append(tickets[:i:i], tickets[i+1:]...)
		}
	}
	return tickets
}

// settle settles any events that were ever made, some of them again.
func (m *machine) settle(t *rapid.T) {
	var batch []settlement.Charge
	for range rapid.IntRange(1, 4).Draw(t, "events") {
		batch = append(batch, pick(t, "event", m.events))
	}
	m.settleAll(batch)
}

func (m *machine) settleAll(batch []settlement.Charge) {
	s := settlement.NewBatch(batch)
	took := map[[16]byte]bool{}
	for _, i := range s.Candidates() {
		if id := batch[i].Request; !m.settled[id] {
			took[id] = true
		}
	}
	for _, i := range s.MarkInserted(took) {
		m.settled[batch[i].Request] = true
		m.spent += batch[i].Cost
	}
	s.ResolveDuplicates(map[[16]byte][32]byte{})
	s.ApplyCharges(m.book, m.tenures)
}

// adjust deposits, or corrects below what is spent.
func (m *machine) adjust(t *rapid.T) {
	m.book.Pools[pick(t, "pool", []wire.PoolID{balance, limit})].Adjust(rapid.Int64Range(-2000, 2000).Draw(t, "by"))
}

// fence has a session expire.
func (m *machine) fence(t *rapid.T) {
	tenure := m.tenures[pick(t, "proxy", m.proxies).id]
	tenure.Remaining = -time.Hour
	tenure.Fence(time.Second)
}

// close has a fenced session be closed, whatever its proxy still does.
func (m *machine) close(t *rapid.T) {
	id := pick(t, "proxy", m.proxies).id
	if !m.tenures[id].Expired(time.Minute) {
		t.Skip("not fenced")
	}
	m.tenures[id].State = session.Closed
	m.book.CloseSession(id)
}

// returnIdle has a proxy hand back what it does not need.
func (m *machine) returnIdle(t *rapid.T) { pick(t, "proxy", m.proxies).holder.ReturnIdle() }

// restate has a proxy tell everything again.
func (m *machine) restate(t *rapid.T) { pick(t, "proxy", m.proxies).holder.Resync() }

// check is I1, I7 and I10, after every step.
func (m *machine) check(t *rapid.T) {
	for id, p := range m.book.Pools {
		held := int64(0)
		for key, l := range m.book.Leases {
			if key.Pool != id {
				continue
			}
			if l.Outstanding() < 0 {
				t.Fatalf("I1: lease %v holds %d", key, l.Outstanding())
			}
			if old := m.before[key]; old.Granted > l.Granted || old.Returned > l.Returned || old.Charged > l.Charged || old.RecalledGeneration > l.RecalledGeneration {
				t.Fatalf("I10: lease %v went back from %+v to %+v", key, old, *l)
			}
			m.before[key] = *l
			held += l.Outstanding()
		}
		if p.Total != p.Free+held+p.Settled {
			t.Fatalf("I1: pool %+v, held %d", *p, held)
		}
		if p.Generation < m.gens[id] {
			t.Fatalf("I10: generation of pool %d went back from %d to %d", id, m.gens[id], p.Generation)
		}
		m.gens[id] = p.Generation
		if p.Kind != wire.Slots && p.Settled != m.spent {
			t.Fatalf("I3: pool %d has %d settled of %d", id, p.Settled, m.spent)
		}
	}
	if p := m.book.Pools[slots]; p.Free < -(p.Overrun + p.Late) {
		t.Fatalf("I7: %+v", *p)
	}
}

// finishAll closes everything; then nothing may be held (I8).
func (m *machine) finishAll(t *rapid.T) {
	m.settleAll(m.events)
	for _, p := range m.proxies {
		m.tenures[p.id].State = session.Closed
		m.book.CloseSession(p.id)
	}
	m.settleAll(m.events)
	m.check(t)
	for id, p := range m.book.Pools {
		if p.Outstanding() != 0 {
			t.Fatalf("I8: %d of pool %d is held when every session has closed", p.Outstanding(), id)
		}
	}
}

func TestAnyOrderOfMessages(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t)
		t.Repeat(map[string]func(*rapid.T){
			"open": m.openSession, "ask": m.ask, "ask again": m.ask, "send": m.send, "send again": m.send, "op": m.deliverOp, "op again": m.deliverOp,
			"reply": m.deliverReply, "reply again": m.deliverReply, "return": m.deliverReturn, "recall": m.deliverRecall, "finish": m.finish,
			"settle": m.settle, "adjust": m.adjust, "fence": m.fence, "close": m.close, "idle": m.returnIdle, "restate": m.restate, "": m.check,
		})
		m.finishAll(t)
	})
}
