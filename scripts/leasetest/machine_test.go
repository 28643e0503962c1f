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

// machine has one account's pools and the sessions of several proxies. Messages
// are never removed: each can be delivered at any time, any number of times.
type machine struct {
	allocator *allocator.Allocator
	sessions  map[wire.SessionID]*session.Record
	results   map[allocator.RequestKey]*allocator.Result
	pending   map[*wire.LeaseRequest]*allocator.PendingRequest
	proxies   []*proxy

	requests  []*wire.LeaseRequest
	responses []response
	returns   []*wire.Return
	recalls   []recall
	events    []settlement.Charge
	settled   map[[16]byte]bool
	spent     int64
	next      byte
	serial    byte
	before    map[allocator.LeaseKey]allocator.Lease
	gens      map[wire.PoolID]int64
}

type proxy struct {
	id      wire.SessionID
	holder  *holder.Holder
	waiting []*holder.Waiter
	running []*holder.Waiter
	ret     *wire.Return
}

type response struct {
	session  wire.SessionID
	response wire.LeaseResponse
}

type recall struct {
	session wire.SessionID
	recall  wire.Recall
}

func newMachine(t *rapid.T) *machine {
	m := &machine{
		allocator: allocator.New(), sessions: map[wire.SessionID]*session.Record{}, results: map[allocator.RequestKey]*allocator.Result{}, pending: map[*wire.LeaseRequest]*allocator.PendingRequest{},
		settled: map[[16]byte]bool{}, before: map[allocator.LeaseKey]allocator.Lease{}, gens: map[wire.PoolID]int64{},
	}
	for id, kind := range map[wire.PoolID]wire.PoolKind{balance: wire.Balance, limit: wire.Limit, slots: wire.Slots} {
		m.allocator.Pools[id] = &allocator.Pool{ID: id, Kind: kind, Account: account, Central: true, Generation: 1}
	}
	m.allocator.Pools[balance].Adjust(rapid.Int64Range(0, 5000).Draw(t, "balance"))
	m.allocator.Pools[limit].Adjust(rapid.Int64Range(0, 5000).Draw(t, "limit"))
	m.allocator.Pools[slots].Adjust(rapid.Int64Range(1, 30).Draw(t, "slots"))
	m.open()
	return m
}

func (m *machine) open() {
	id := wire.SessionID(len(m.proxies) + 1)
	m.sessions[id] = &session.Record{ID: id, BootID: "boot", State: session.Active, Remaining: time.Second}
	m.proxies = append(m.proxies, &proxy{id: id, holder: holder.NewHolder(id, "boot", account)})
}

func (m *machine) batch() *allocator.Batch {
	m.allocator.Recalls = map[wire.PoolID]string{}
	for id, t := range m.sessions {
		m.allocator.EndedSessions[id] = !t.MayAdmit()
	}
	return &allocator.Batch{Allocator: m.allocator, Sessions: m.sessions, Results: m.results, LiveProxies: int64(len(m.proxies)), SinceLoss: 24 * time.Hour}
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

// ask sends a client's request to a proxy.
func (m *machine) ask(t *rapid.T) {
	p := pick(t, "proxy", m.proxies)
	amount := rapid.Int64Range(1, 400).Draw(t, "amount")
	waiter := p.holder.Reserve([]wire.Need{
		{Pool: balance, Kind: wire.Balance, Amount: amount}, {Pool: limit, Kind: wire.Limit, Amount: amount}, {Pool: slots, Kind: wire.Slots, Amount: 1},
	})
	if waiter.Granted() {
		p.running = append(p.running, waiter)
	} else {
		p.waiting = append(p.waiting, waiter)
	}
}

// send takes the next messages of a proxy.
func (m *machine) send(t *rapid.T) {
	p := pick(t, "proxy", m.proxies)
	if request := p.holder.NextRequest(); request != nil {
		m.requests = append(m.requests, request)
	}
	if ret := p.holder.NextReturn(); ret != nil {
		p.ret = ret
		m.returns = append(m.returns, ret)
	}
}

// deliverRequest delivers any lease request that was ever sent.
func (m *machine) deliverRequest(t *rapid.T) {
	request := pick(t, "request", m.requests)
	d := m.batch()
	pending := m.pending[request]
	if pending == nil {
		pending = &allocator.PendingRequest{}
		m.pending[request] = pending
	}
	pending.MayWait, pending.ResendRecall = rapid.Bool().Draw(t, "may wait"), rapid.Bool().Draw(t, "resend")
	answer, _ := d.Decide(request, pending, func(*allocator.Batch) {
		if rapid.IntRange(0, 3).Draw(t, "headroom") == 0 {
			m.allocator.Pools[balance].EnterEscrow()
		}
	})
	for session, recalls := range m.allocator.ToRecall() {
		for _, r := range recalls {
			m.recalls = append(m.recalls, recall{session, r})
		}
	}
	if answer != nil {
		m.responses = append(m.responses, response{request.Session, *answer})
	}
}

// deliverResponse delivers any response that was ever made to its proxy.
func (m *machine) deliverResponse(t *rapid.T) {
	r := pick(t, "response", m.responses)
	p := m.proxies[r.session-1]
	if r.response.Status == wire.Fenced && m.sessions[r.session].MayAdmit() {
		t.Skip("only an ended session gets a fenced response")
	}
	for _, waiter := range p.holder.HandleResponse(&r.response) {
		if waiter.Granted() {
			p.running = append(p.running, waiter)
		}
	}
}

// deliverReturn delivers any return that was ever sent.
func (m *machine) deliverReturn(t *rapid.T) {
	ret := pick(t, "return", m.returns)
	answer := m.batch().ApplyReturn(ret)
	if p := m.proxies[ret.Session-1]; p.ret == ret && rapid.Bool().Draw(t, "answered") {
		p.holder.ReturnDelivered(answer.Settled)
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
	waiter := pick(t, "request", p.running)
	cost := rapid.Int64Range(0, 600).Draw(t, "cost")
	p.running = remove(p.running, waiter)
	p.holder.Release(waiter, cost)
	m.event(p.id, cost)
}

func (m *machine) event(session wire.SessionID, cost int64) {
	m.next++
	if m.next == 0 {
		m.serial++
	}
	m.events = append(m.events, settlement.Charge{Request: [16]byte{m.serial, m.next}, Session: session, Cost: cost, Pools: []wire.PoolID{balance, limit}})
}

func remove(waiters []*holder.Waiter, gone *holder.Waiter) []*holder.Waiter {
	for i, t := range waiters {
		if t == gone {
			return append(waiters[:i:i], waiters[i+1:]...)
		}
	}
	return waiters
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
	s.ApplyCharges(m.allocator, m.sessions)
}

// adjust makes a deposit or a correction.
func (m *machine) adjust(t *rapid.T) {
	m.allocator.Pools[pick(t, "pool", []wire.PoolID{balance, limit})].Adjust(rapid.Int64Range(-2000, 2000).Draw(t, "by"))
}

// fence expires a session.
func (m *machine) fence(t *rapid.T) {
	record := m.sessions[pick(t, "proxy", m.proxies).id]
	record.Remaining = -time.Hour
	if record.Expired() { // the stream of changes has confirmed its end
		record.State = session.Fenced
	}
}

// close closes a fenced session, even if its proxy still runs requests.
func (m *machine) close(t *rapid.T) {
	id := pick(t, "proxy", m.proxies).id
	if !m.sessions[id].Over(session.Never, time.Minute) {
		t.Skip("not fenced")
	}
	m.sessions[id].State = session.Closed
	m.allocator.CloseSession(id)
}

// returnIdle makes a proxy return its idle units.
func (m *machine) returnIdle(t *rapid.T) { pick(t, "proxy", m.proxies).holder.ReturnIdle() }

// forget makes a proxy forget what holds nothing.
func (m *machine) forget(t *rapid.T) { pick(t, "proxy", m.proxies).holder.ForgetSettled() }

// resync makes a proxy report everything again.
func (m *machine) resync(t *rapid.T) { pick(t, "proxy", m.proxies).holder.Resync() }

// check checks I1, I7 and I10 after every step.
func (m *machine) check(t *rapid.T) {
	for id, p := range m.allocator.Pools {
		outstanding := int64(0)
		for key, l := range m.allocator.Leases {
			if key.Pool != id {
				continue
			}
			if l.Outstanding() < 0 {
				t.Fatalf("I1: lease %v has %d outstanding", key, l.Outstanding())
			}
			if old := m.before[key]; old.Granted > l.Granted || old.Returned > l.Returned || old.Charged > l.Charged || old.RecalledGeneration > l.RecalledGeneration {
				t.Fatalf("I10: lease %v went back from %+v to %+v", key, old, *l)
			}
			m.before[key] = *l
			outstanding += l.Outstanding()
		}
		if p.Total != p.Free+outstanding+p.Settled {
			t.Fatalf("I1: pool %+v, outstanding %d", *p, outstanding)
		}
		if p.Generation < m.gens[id] {
			t.Fatalf("I10: generation of pool %d went back from %d to %d", id, m.gens[id], p.Generation)
		}
		m.gens[id] = p.Generation
		if p.Kind != wire.Slots && p.Settled != m.spent {
			t.Fatalf("I3: pool %d has %d settled; want %d", id, p.Settled, m.spent)
		}
	}
	if p := m.allocator.Pools[slots]; p.Free < -(p.Overrun + p.Late) {
		t.Fatalf("I7: %+v", *p)
	}
}

// finishAll closes everything; then no pool may have outstanding units (I8).
func (m *machine) finishAll(t *rapid.T) {
	m.settleAll(m.events)
	for _, p := range m.proxies {
		m.sessions[p.id].State = session.Closed
		m.allocator.CloseSession(p.id)
	}
	m.settleAll(m.events)
	m.check(t)
	for id, p := range m.allocator.Pools {
		if p.Outstanding() != 0 {
			t.Fatalf("I8: %d of pool %d are outstanding when every session has closed", p.Outstanding(), id)
		}
	}
}

func TestInvariantsHoldInAnyOrderOfMessages(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t)
		t.Repeat(map[string]func(*rapid.T){
			"open": m.openSession, "ask": m.ask, "ask again": m.ask, "send": m.send, "send again": m.send, "request": m.deliverRequest, "request again": m.deliverRequest,
			"response": m.deliverResponse, "response again": m.deliverResponse, "return": m.deliverReturn, "recall": m.deliverRecall, "finish": m.finish,
			"settle": m.settle, "adjust": m.adjust, "fence": m.fence, "close": m.close, "idle": m.returnIdle, "forget": m.forget, "resync": m.resync, "": m.check,
		})
		m.finishAll(t)
	})
}
