package holder

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/wire"
)

// world is a small model of proxies, messages and the control plane: messages
// are lost, repeated and delayed, and every step checks the invariants.
type world struct {
	t         reporter
	v         variant
	r         *rand.Rand
	allocator *allocator.Allocator
	proxies   []*proxy
	requests  []*wire.LeaseRequest
	responses []wire.LeaseResponse
	returns   []*wire.Return
	recalls   []recall
	weights   [12]int
	total     int
	waits     int
	results   map[wire.SessionID]wire.LeaseResponse
	pending   map[*wire.LeaseRequest]*allocator.PendingRequest
	charges   []charge
	spent     map[wire.PoolID]int64
}

// reporter is the part of testing.T that a world uses. Fatalf does not return.
type reporter interface {
	Helper()
	Fatalf(format string, args ...any)
}

type proxy struct {
	id      wire.SessionID
	h       *Holder
	waiting []*Waiter
	running []*Waiter
	closed  bool
}

type recall struct {
	session wire.SessionID
	pool    wire.PoolID
	gen     int64
}

type charge struct {
	session wire.SessionID
	cost    int64
	limited bool
}

func need(pool wire.PoolID, kind wire.PoolKind, amount int64) wire.Need {
	return wire.Need{Pool: pool, Kind: kind, Amount: amount}
}

func newWorld(t reporter, v variant, seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, 7))
	w := &world{t: t, v: v, r: r, allocator: allocator.New(), results: map[wire.SessionID]wire.LeaseResponse{}, pending: map[*wire.LeaseRequest]*allocator.PendingRequest{}, spent: map[wire.PoolID]int64{}}
	for i := range w.weights {
		w.weights[i] = 1 + r.IntN(3)*r.IntN(8)
		w.total += w.weights[i]
	}
	totals := []int64{r.Int64N(5000), r.Int64N(3000), 1 + r.Int64N(4)}
	for i, kind := range []wire.PoolKind{wire.Balance, wire.Limit, wire.Slots} {
		id := wire.PoolID(i + 1)
		w.allocator.Pools[id] = &allocator.Pool{ID: id, Kind: kind, Central: true, Generation: 1, Total: totals[i], Free: totals[i]}
	}
	for i := range 1 + r.IntN(4) {
		id := wire.SessionID(i + 1)
		w.proxies = append(w.proxies, &proxy{id: id, h: NewHolder(id, "boot", "acc")})
	}
	return w
}

// action draws the next action. The probabilities differ from seed to seed:
// some faults are visible only if responses are slow, others only if recalls
// are.
func (w *world) action() int {
	x := w.r.IntN(w.total)
	for i, weight := range w.weights {
		if x -= weight; x < 0 {
			return i
		}
	}
	panic("weights do not add up")
}

func (w *world) step() {
	member := w.proxies[w.r.IntN(len(w.proxies))]
	switch w.action() {
	case 0, 1:
		amount := 1 + w.r.Int64N(400)
		needs := []wire.Need{need(1, wire.Balance, amount), need(3, wire.Slots, 1), need(2, wire.Limit, amount)}
		t := member.h.Reserve(needs[:2+w.r.IntN(2)]) // half of the keys have no limit
		if member.waiting = append(member.waiting, t); t.Granted() {
			member.started([]*Waiter{t})
		}
	case 2:
		if len(member.running) > 0 {
			i := w.r.IntN(len(member.running))
			cost := w.r.Int64N(500) // may exceed what was reserved
			w.charges = append(w.charges, charge{member.id, cost, len(member.running[i].needs) == 3})
			if w.r.IntN(3) == 0 { // its client has left before
				member.started(member.h.ReleaseSlot(member.running[i]))
			}
			admitted := w.v.finish(member.h, member.running[i], cost)
			member.running = append(member.running[:i], member.running[i+1:]...)
			member.started(admitted)
		}
	case 3:
		if len(member.waiting) > 0 {
			i := w.r.IntN(len(member.waiting))
			if member.h.Cancel(member.waiting[i]) {
				member.waiting = append(member.waiting[:i], member.waiting[i+1:]...)
			}
		}
	case 4:
		w.deliverRequest()
	case 5:
		w.deliverResponse()
	case 6:
		w.deliverReturn()
	case 7:
		w.settle()
	case 8:
		w.send(member)
	case 9:
		p := w.allocator.Pools[wire.PoolID(1+2*w.r.IntN(2))]
		if p.Free > p.Total/4 && w.r.IntN(4) == 0 {
			p.EnterEscrow()
		}
	case 10:
		w.deliverRecall()
	case 11:
		if w.r.IntN(3) == 0 {
			member.h.ReturnIdle()
		}
	}
	w.check()
}

func (w *world) send(member *proxy) {
	if request := member.h.NextRequest(); request != nil {
		w.requests = append(w.requests, request)
	} else if member.h.request != nil && w.r.IntN(2) == 0 {
		w.requests = append(w.requests, member.h.request) // sent again
	}
	if ret := member.h.NextReturn(); ret != nil {
		w.returns = append(w.returns, ret)
	} else if member.h.ret != nil && w.r.IntN(2) == 0 {
		w.returns = append(w.returns, member.h.ret)
	}
}

// pick takes a random message. Some messages stay in the queue, and are
// delivered again; for some it returns false, and they are lost.
func pick[T any](w *world, queue *[]T) (T, bool) {
	var none T
	if len(*queue) == 0 {
		return none, false
	}
	i := w.r.IntN(len(*queue))
	m := (*queue)[i]
	if w.r.IntN(5) > 0 {
		*queue = append((*queue)[:i], (*queue)[i+1:]...)
	}
	return m, w.r.IntN(6) > 0
}

func (w *world) deliverRequest() {
	request, ok := pick(w, &w.requests)
	if !ok {
		return
	}
	last, known := w.results[request.Session]
	switch {
	case known && request.Number < last.Number:
		return
	case known && request.Number == last.Number:
		w.responses = append(w.responses, last)
		return
	}
	w.begin()
	pending := w.pending[request]
	if pending == nil {
		pending = &allocator.PendingRequest{}
		w.pending[request] = pending
	}
	pending.MayWait, pending.ResendRecall = w.r.IntN(2) == 0, w.r.IntN(2) == 0
	response, decided := w.v.decide(w.allocator, request, pending)
	w.sendRecalls()
	if !decided {
		w.requests = append(w.requests, request) // to be decided later
		return
	}
	if response.Status == wire.Wait {
		w.waits++
		w.responses = append(w.responses, response)
		return
	}
	w.results[request.Session] = response
	for i, d := range response.Decisions {
		if !d.Granted {
			w.mustBeShort(request, i, response)
		}
	}
	w.responses = append(w.responses, response)
}

// begin prepares the allocator for the next transaction.
func (w *world) begin() {
	w.allocator.Recalls = map[wire.PoolID]string{}
}

func (w *world) sendRecalls() {
	recalls := w.allocator.ToRecall()
	for _, member := range w.proxies {
		for _, r := range recalls[member.id] {
			w.recalls = append(w.recalls, recall{member.id, r.Pool, r.Generation})
		}
	}
}

func (w *world) deliverRecall() {
	if m, ok := pick(w, &w.recalls); ok {
		w.proxies[m.session-1].h.HandleRecall(m.pool, m.gen)
	}
}

// noIdleUnits checks I5: when a request was refused because a pool was short, no
// session held idle units of the pool. Units in a response on its way are used
// if they were granted to a request, and idle if they are an allotment.
func (w *world) noIdleUnits(pool wire.PoolID) {
	for _, member := range w.proxies {
		l, p := w.allocator.Leases[allocator.LeaseKey{Pool: pool, Session: member.id}], member.h.pools[pool]
		if l == nil || p == nil {
			continue
		}
		used := p.returned + p.charged + p.running
		if last, request := w.results[member.id], member.h.request; request != nil && request.Number == last.Number {
			for i, d := range last.Decisions {
				for _, n := range request.Needs[i] {
					if d.Granted && n.Pool == pool {
						used += n.Amount
					}
				}
			}
		}
		if idle := l.Granted - used; idle > 0 {
			w.t.Fatalf("refused because pool %d was short, while session %d has %d idle units: lease %+v, holder's lease %+v, pool %+v, request %+v", pool, member.id, idle, *l, *p, *w.allocator.Pools[pool], member.h.request)
		}
	}
}

// heldKind has the kind of the pool that is reserved, by the reason of a
// refusal. A spent pool is refused without a recall, because no return could
// help.
var heldKind = map[wire.RefusalReason]wire.PoolKind{wire.NoSlot: wire.Slots, wire.LimitReserved: wire.Limit, wire.BalanceReserved: wire.Balance}

// mustBeShort checks that some pool had less than the need, after the grants
// before it.
func (w *world) mustBeShort(request *wire.LeaseRequest, i int, response wire.LeaseResponse) {
	for _, n := range request.Needs[i] {
		if kind, ok := heldKind[response.Decisions[i].Reason]; ok && kind == n.Kind {
			w.noIdleUnits(n.Pool)
		}
		free := w.allocator.Pools[n.Pool].Free
		for j, d := range response.Decisions {
			if j > i && d.Granted {
				for _, m := range request.Needs[j] {
					if m.Pool == n.Pool {
						free += m.Amount
					}
				}
			}
		}
		if free < n.Amount {
			return
		}
	}
	w.t.Fatalf("request %d of %+v was refused (%s) although every pool had enough", i, request, response.Decisions[i].Reason)
}

func (w *world) deliverResponse() {
	response, ok := pick(w, &w.responses)
	if !ok {
		return
	}
	for _, member := range w.proxies {
		if response.Status == wire.Wait || w.results[member.id].Number == 0 || member.h.request == nil || member.h.request.Number != response.Number || !sameResponse(w.results[member.id], response) {
			continue
		}
		member.started(member.h.HandleResponse(&response))
		return
	}
}

// started records the waiters that are decided.
func (p *proxy) started(decided []*Waiter) {
	for _, t := range decided {
		if t.Granted() {
			p.running = append(p.running, t)
		}
		p.waiting = slices.DeleteFunc(p.waiting, func(w *Waiter) bool { return w == t })
	}
}

func sameResponse(a, b wire.LeaseResponse) bool {
	return fmt.Sprintf("%p", a.Decisions) == fmt.Sprintf("%p", b.Decisions)
}

func (w *world) deliverReturn() {
	ret, ok := pick(w, &w.returns)
	if !ok {
		return
	}
	w.v.report(w.allocator, ret.Session, ret.Reports)
	if w.r.IntN(4) > 0 {
		for _, member := range w.proxies {
			if member.h.ret == ret {
				member.h.ReturnDelivered(nil)
			}
		}
	}
}

func (w *world) settle() {
	if len(w.charges) == 0 {
		return
	}
	c := w.charges[0]
	w.charges = w.charges[1:]
	closed := w.proxies[c.session-1].closed
	w.v.charge(w.allocator, c.session, closed, 1, c.cost)
	w.spent[1] += c.cost
	if c.limited {
		w.v.charge(w.allocator, c.session, closed, 2, c.cost)
		w.spent[2] += c.cost
	}
}

func (w *world) check() {
	w.t.Helper()
	for id, p := range w.allocator.Pools {
		held := int64(0)
		for key, l := range w.allocator.Leases {
			if key.Pool != id {
				continue
			}
			if l.Outstanding() < 0 {
				w.t.Fatalf("lease %v has %d outstanding", key, l.Outstanding())
			}
			held += l.Outstanding()
		}
		if p.Total != p.Free+held+p.Settled {
			w.t.Fatalf("pool %d: total %d, free %d, outstanding %d, settled %d", id, p.Total, p.Free, held, p.Settled)
		}
		if p.Settled != w.spent[id] {
			w.t.Fatalf("pool %d: settled %d, charged %d", id, p.Settled, w.spent[id])
		}
		if p.Free < -(p.Overrun + p.Late) {
			w.t.Fatalf("pool %d: free %d below overrun %d and late %d", id, p.Free, p.Overrun, p.Late)
		}
	}
	slots := 0
	for _, member := range w.proxies {
		slots += len(member.running)
		for id, p := range member.h.pools {
			// I2: running and charged units were granted, except for overruns.
			l := w.allocator.Leases[allocator.LeaseKey{Pool: id, Session: member.id}]
			if p.running > 0 && (l == nil || l.Granted < p.granted) {
				w.t.Fatalf("session %d runs %d of pool %d on %+v", member.id, p.running, id, l)
			}
		}
	}
	if total := w.allocator.Pools[3].Total; int64(slots) > total {
		w.t.Fatalf("%d requests run on %d slots", slots, total)
	}
}

// drain delivers every message, and checks that no pool has outstanding units
// then.
func (w *world) drain() {
	for range 20 {
		for _, member := range w.proxies {
			member.h.ReturnIdle()
			for len(member.running) > 0 {
				t := member.running[0]
				member.running = member.running[1:]
				member.started(w.v.finish(member.h, t, 1))
				w.charges = append(w.charges, charge{member.id, 1, len(t.needs) == 3})
			}
			if request := member.h.NextRequest(); request != nil || member.h.request != nil {
				request = member.h.request
				response, known := w.results[member.id]
				if !known || response.Number < request.Number {
					w.begin()
					response, _ = w.v.decide(w.allocator, request, &allocator.PendingRequest{})
					w.sendRecalls()
					for len(w.recalls) > 0 {
						w.deliverRecall()
					}
					if response.Status == wire.Done {
						w.results[member.id] = response
					}
				}
				for _, t := range member.h.HandleResponse(&response) {
					if t.Granted() {
						member.running = append(member.running, t)
					}
				}
			}
			for member.h.ret != nil || member.h.NextReturn() != nil {
				w.v.report(w.allocator, member.id, member.h.ret.Reports)
				member.h.ReturnDelivered(nil)
			}
		}
		for len(w.charges) > 0 {
			w.settle()
		}
		w.check()
	}
	for id, p := range w.allocator.Pools {
		if p.Outstanding() != 0 {
			w.t.Fatalf("pool %d: %d outstanding when nothing runs", id, p.Outstanding())
		}
	}
}

// run makes random steps, and then closes all sessions: their units are
// returned, and the remaining charges are late.
func (w *world) run() {
	for range 400 {
		w.step()
	}
	if w.r.IntN(2) == 0 {
		w.drain()
	}
	for _, member := range w.proxies {
		member.closed = true
		w.v.close(w.allocator, member.id)
	}
	w.charges = append(w.charges, charge{1, 5, true})
	for len(w.charges) > 0 {
		w.settle()
		w.check()
	}
	for id, p := range w.allocator.Pools {
		if p.Outstanding() != 0 {
			w.t.Fatalf("pool %d: %d outstanding after every session closed", id, p.Outstanding())
		}
	}
}

func TestProtocolKeepsItsInvariants(t *testing.T) {
	t.Parallel()
	for seed := range uint64(1000) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			newWorld(t, correct, seed).run()
		})
	}
}

func TestRefusalReasons(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name                  string
		balance, limit, slots allocator.Pool
		want                  wire.RefusalReason
	}{
		{"key limit comes first", allocator.Pool{Total: 5, Free: 5, Settled: 0}, allocator.Pool{Total: 5, Free: 5}, allocator.Pool{}, wire.LimitInsufficient},
		{"balance", allocator.Pool{Total: 5, Free: 5}, allocator.Pool{Total: 100, Free: 100}, allocator.Pool{}, wire.BalanceInsufficient},
		{"no slot comes before reserved", allocator.Pool{Total: 100}, allocator.Pool{Total: 100}, allocator.Pool{Total: 1}, wire.NoSlot},
		{"key limit reserved comes before balance reserved", allocator.Pool{Total: 100}, allocator.Pool{Total: 100}, allocator.Pool{Total: 1, Free: 1}, wire.LimitReserved},
		{"balance reserved", allocator.Pool{Total: 100}, allocator.Pool{Total: 100, Free: 100}, allocator.Pool{Total: 1, Free: 1}, wire.BalanceReserved},
		{"granted", allocator.Pool{Total: 100, Free: 10}, allocator.Pool{Total: 100, Free: 10}, allocator.Pool{Total: 1, Free: 1}, ""},
		{"unlimited refuses nothing", allocator.Pool{Total: 100, Free: 10}, allocator.Pool{Unlimited: true, Free: -50, Settled: 50}, allocator.Pool{Total: 1, Free: 1}, ""},
	}
	for _, tt := range tests {
		b := allocator.New()
		for i, p := range []allocator.Pool{tt.balance, tt.limit, tt.slots} {
			p.ID, p.Kind, p.Central, p.Generation = wire.PoolID(i+1), wire.PoolKind(i+1), true, 1
			b.Pools[p.ID] = &p
		}
		response, _ := b.Decide(&wire.LeaseRequest{Session: 1, Number: 1, Needs: [][]wire.Need{{need(1, wire.Balance, 10), need(2, wire.Limit, 10), need(3, wire.Slots, 1)}}}, &allocator.PendingRequest{})
		if got := response.Decisions[0].Reason; got != tt.want || response.Decisions[0].Granted != (tt.want == "") {
			t.Errorf("%s: got %+v; want %q", tt.name, response.Decisions[0], tt.want)
		}
		if tt.want != "" && len(b.Leases) != 0 {
			t.Errorf("%s: a refusal left %d leases", tt.name, len(b.Leases))
		}
	}
}

// A refusal does not affect the requests behind it.
func TestEachRequestIsDecidedAlone(t *testing.T) {
	t.Parallel()
	b := allocator.New()
	b.Pools[1] = &allocator.Pool{ID: 1, Kind: wire.Balance, Central: true, Generation: 1, Total: 100, Free: 100}
	request := &wire.LeaseRequest{Session: 1, Number: 1}
	for _, amount := range []int64{60, 50, 40, 1} {
		request.Needs = append(request.Needs, []wire.Need{need(1, wire.Balance, amount)})
	}
	response, decided := b.Decide(request, &allocator.PendingRequest{})
	if !decided {
		t.Fatal("not decided although it may not wait")
	}
	var got []bool
	for _, d := range response.Decisions {
		got = append(got, d.Granted)
	}
	if want := fmt.Sprint([]bool{true, false, true, false}); fmt.Sprint(got) != want {
		t.Errorf("got %v; want %v", got, want)
	}
}

func TestDecisionWaitsForReturns(t *testing.T) {
	t.Parallel()
	b := allocator.New()
	b.Pools[3] = &allocator.Pool{ID: 3, Kind: wire.Slots, Central: true, Generation: 1, Total: 1, Free: 1}
	first := NewHolder(1, "b", "acc")
	running := first.Reserve([]wire.Need{need(3, wire.Slots, 1)})
	response, _ := b.Decide(first.NextRequest(), &allocator.PendingRequest{MayWait: true})
	first.HandleResponse(&response)
	second := NewHolder(2, "b", "acc")
	waiter := second.Reserve([]wire.Need{need(3, wire.Slots, 1)})
	request := second.NextRequest()
	if _, decided := b.Decide(request, &allocator.PendingRequest{MayWait: true}); decided {
		t.Fatal("refused while the slot could still come back")
	}
	first.Release(running, 0)
	b.ApplyReports(1, first.NextReturn().Reports)
	response, decided := b.Decide(request, &allocator.PendingRequest{MayWait: true})
	if second.HandleResponse(&response); !decided || !waiter.Granted() {
		t.Fatalf("decided %v, granted %v; want both after the return", decided, waiter.Granted())
	}
}

func TestFencedSessionAbortsItsWaiters(t *testing.T) {
	t.Parallel()
	h := NewHolder(1, "b", "acc")
	a, b := h.Reserve([]wire.Need{need(1, wire.Balance, 1)}), h.Reserve([]wire.Need{need(1, wire.Balance, 1)})
	h.NextRequest()
	c := h.Reserve([]wire.Need{need(1, wire.Balance, 1)})
	h.Cancel(b)
	if got := h.HandleResponse(&wire.LeaseResponse{Status: wire.Fenced}); len(got) != 2 || !a.Aborted() || b.Aborted() || !c.Aborted() {
		t.Errorf("%d waiters were aborted; want 2", len(got))
	}
	if h.NextRequest() != nil {
		t.Error("a holder without waiters sends a lease request")
	}
}

func TestRecallIsAnsweredWithoutIdleUnits(t *testing.T) {
	t.Parallel()
	b := allocator.New()
	b.Pools[1] = &allocator.Pool{ID: 1, Kind: wire.Balance, Central: true, Generation: 1, Total: 10, Free: 10}
	h := NewHolder(1, "b", "acc")
	h.Reserve([]wire.Need{need(1, wire.Balance, 10)})
	response, _ := b.Decide(h.NextRequest(), &allocator.PendingRequest{})
	h.HandleResponse(&response)
	b.Pools[1].Generation = 2
	h.HandleRecall(1, 2)
	ret := h.NextReturn()
	if ret == nil {
		t.Fatal("a recall was not answered")
	}
	b.ApplyReports(1, ret.Reports)
	if got := b.Leases[allocator.LeaseKey{Pool: 1, Session: 1}].RecalledGeneration; got != 2 {
		t.Errorf("recalled generation %d; want 2", got)
	}
	if h.ReturnDelivered(nil); h.NextReturn() != nil {
		t.Error("the recall is answered twice")
	}
}

func TestDisablingEscrowReturnsIdleUnits(t *testing.T) {
	t.Parallel()
	b := allocator.New()
	b.Pools[1] = &allocator.Pool{ID: 1, Kind: wire.Balance, Generation: 2, Total: 1000, Free: 1000}
	h := NewHolder(1, "b", "acc")
	first := h.Reserve([]wire.Need{need(1, wire.Balance, 10)})
	response, _ := b.Decide(h.NextRequest(), &allocator.PendingRequest{MayWait: true})
	if h.HandleResponse(&response); !first.Granted() {
		t.Fatal("not granted")
	}
	if second := h.Reserve([]wire.Need{need(1, wire.Balance, 10)}); !second.Granted() {
		t.Fatal("the allotment did not serve the next request")
	}
	h.DisableEscrow()
	said := h.NextReturn()
	// An earlier report does not answer a later recall: requests may have ended since.
	b.Pools[1].Central, b.Pools[1].Generation = true, 3
	b.ApplyReports(1, said.Reports)
	if got := b.Leases[allocator.LeaseKey{Pool: 1, Session: 1}]; got.Outstanding() != 20 || got.RecalledGeneration == 3 {
		t.Errorf("lease %+v after escrow was disabled; want the 20 units of the two running requests, and no answer to the recall", *got)
	}
	h.ReturnDelivered(nil)
	h.Release(first, 4)
	h.HandleRecall(1, 3)
	b.ApplyReports(1, h.NextReturn().Reports)
	if got := b.Leases[allocator.LeaseKey{Pool: 1, Session: 1}]; got.Outstanding() != 14 || got.RecalledGeneration != 3 {
		t.Errorf("lease %+v after the recall; want it answered", *got)
	}
	if third := h.Reserve([]wire.Need{need(1, wire.Balance, 10)}); third.Granted() {
		t.Error("a request was admitted from idle units after escrow was disabled")
	}
}

// A response that was on its way when escrow was disabled does not enable it
// again; the response to a later lease request does.
func TestNextResponseEnablesEscrowAgain(t *testing.T) {
	t.Parallel()
	b := allocator.New()
	b.Pools[1] = &allocator.Pool{ID: 1, Kind: wire.Balance, Generation: 2, Total: 1000, Free: 1000}
	h, need := NewHolder(1, "b", "acc"), []wire.Need{need(1, wire.Balance, 10)}
	h.Reserve(need)
	late, _ := b.Decide(h.NextRequest(), &allocator.PendingRequest{MayWait: true})
	h.DisableEscrow()
	h.HandleResponse(&late)
	if idle := h.pools[1].idle(); idle != 0 || h.NextReturn() == nil {
		t.Fatalf("%d idle units are held because of an earlier response", idle)
	}
	h.ReturnDelivered(nil)
	h.Reserve(need)
	response, _ := b.Decide(h.NextRequest(), &allocator.PendingRequest{MayWait: true})
	h.HandleResponse(&response)
	if !h.Reserve(need).Granted() {
		t.Error("no allotment serves requests any more, although the pool has headroom")
	}
}

// A pool that never runs short does not collect idle units while another one
// does run short.
func TestIdleUnitsDoNotGrowWithLeaseRequests(t *testing.T) {
	t.Parallel()
	b := allocator.New()
	b.Pools[1] = &allocator.Pool{ID: 1, Kind: wire.Balance, Generation: 2, Total: 10_000_000, Free: 10_000_000}
	b.Pools[3] = &allocator.Pool{ID: 3, Kind: wire.Slots, Generation: 2, Total: 100_000, Free: 100_000}
	h := NewHolder(1, "b", "acc")
	asked := 0
	for range 2000 {
		waiter := h.Reserve([]wire.Need{need(1, wire.Balance, 10), need(3, wire.Slots, 1)})
		if request := h.NextRequest(); request != nil {
			asked++
			response, _ := b.Decide(request, &allocator.PendingRequest{MayWait: true})
			h.HandleResponse(&response)
		}
		if !waiter.Granted() {
			t.Fatalf("not granted after %d lease requests: %+v", asked, waiter.Decision())
		}
		h.Release(waiter, 10)
	}
	if held := b.Pools[3].Outstanding(); held > 1+allocator.AllotmentNeeds {
		t.Errorf("%d slots are outstanding after %d lease requests; want one allotment at most", held, asked)
	}
	if asked > 2000/allocator.AllotmentNeeds+1 {
		t.Errorf("%d lease requests for 2000 requests; want one for each allotment of the balance", asked)
	}
}

// A request that comes while a lease request is outstanding is admitted from its
// allotment, in order, without another lease request.
func TestAllotmentServesEarlierWaiters(t *testing.T) {
	t.Parallel()
	b := allocator.New()
	b.Pools[1] = &allocator.Pool{ID: 1, Kind: wire.Balance, Generation: 2, Total: 1_000_000, Free: 1_000_000}
	h := NewHolder(1, "b", "acc")
	h.Reserve([]wire.Need{need(1, wire.Balance, 10)})
	request := h.NextRequest()
	second, large, fourth := h.Reserve([]wire.Need{need(1, wire.Balance, 10)}), h.Reserve([]wire.Need{need(1, wire.Balance, 10_000)}), h.Reserve([]wire.Need{need(1, wire.Balance, 10)})
	response, _ := b.Decide(request, &allocator.PendingRequest{MayWait: true})
	if got := h.HandleResponse(&response); len(got) != 3 || got[1] != second || !second.Granted() {
		t.Fatalf("%d waiters decided, the second granted: %t; want three, granted", len(got), second.Granted())
	}
	if large.Granted() || !fourth.Granted() {
		t.Errorf("the large request is admitted: %t, the small one behind it: %t; want only the small one, which is covered", large.Granted(), fourth.Granted())
	}
	if request = h.NextRequest(); request == nil || len(request.Needs) != 1 {
		t.Errorf("the next lease request is %+v; want one for the large request", request)
	}
}

// allotted returns the Holder of session 1 with an allotment of pool 1.
func allotted(t *testing.T, b *allocator.Allocator, need []wire.Need) *Holder {
	t.Helper()
	h := NewHolder(1, "b", "acc")
	h.Reserve(need)
	response, _ := b.Decide(h.NextRequest(), &allocator.PendingRequest{MayWait: true})
	if h.HandleResponse(&response); !h.Reserve(need).Granted() {
		t.Fatal("the allotment does not serve the next request")
	}
	return h
}

// While a lease request has no response, perhaps because the control plane is
// away, the requests that idle units cover are admitted all the same.
func TestCoveredRequestsPassAWaiter(t *testing.T) {
	t.Parallel()
	small, slot := need(1, wire.Balance, 10), need(3, wire.Slots, 1)
	for name, waiting := range map[string][]wire.Need{
		"the key has a spend limit":         {small, need(2, wire.Limit, 10), slot},
		"it needs more than the idle units": {need(1, wire.Balance, 1_000_000), slot},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := allocator.New()
			b.Pools[1] = &allocator.Pool{ID: 1, Kind: wire.Balance, Generation: 2, Total: 10_000_000, Free: 10_000_000}
			b.Pools[2] = &allocator.Pool{ID: 2, Kind: wire.Limit, Central: true, Generation: 1, Total: 1000, Free: 1000}
			b.Pools[3] = &allocator.Pool{ID: 3, Kind: wire.Slots, Generation: 2, Total: 1000, Free: 1000}
			h := allotted(t, b, []wire.Need{small, slot})
			waiter := h.Reserve(waiting)
			request := h.NextRequest()
			if waiter.Granted() || request == nil || h.NextReturn() != nil {
				t.Fatalf("granted: %t, request %+v; want the request to wait, and no units to be returned", waiter.Granted(), request)
			}
			for i := range 50 {
				if !h.Reserve([]wire.Need{small, slot}).Granted() {
					t.Fatalf("covered request %d waits behind one that is not covered", i)
				}
			}
			response, _ := b.Decide(request, &allocator.PendingRequest{})
			if h.HandleResponse(&response); !waiter.Granted() {
				t.Errorf("the waiting request got %+v; want it granted", response)
			}
		})
	}
}

// Units that come back admit the requests that wait for them, in their order,
// although the lease request for them has no response.
func TestReturningUnitsAdmitWaiters(t *testing.T) {
	t.Parallel()
	b := allocator.New()
	b.Pools[3] = &allocator.Pool{ID: 3, Kind: wire.Slots, Generation: 2, Total: 32, Free: 32}
	h := NewHolder(1, "b", "acc")
	slot := []wire.Need{need(3, wire.Slots, 1)}
	running := h.Reserve(slot)
	response, _ := b.Decide(h.NextRequest(), &allocator.PendingRequest{})
	h.HandleResponse(&response)
	second := h.Reserve(slot)
	first := h.Reserve(slot)
	request := h.NextRequest()
	later := h.Reserve(slot)
	if !second.Granted() || first.Granted() || later.Granted() {
		t.Fatalf("granted: %t, %t, %t; want only the request that the allotment covers", second.Granted(), first.Granted(), later.Granted())
	}
	if got := h.Release(running, 0); len(got) != 1 || got[0] != first || !first.Granted() {
		t.Fatalf("%d waiters admitted by the slot that came back; want the first", len(got))
	}
	response, _ = b.Decide(request, &allocator.PendingRequest{})
	if got := h.HandleResponse(&response); len(got) != 1 || got[0] != later {
		t.Errorf("%d waiters decided by the response; want the one behind, because the first runs already", len(got))
	}
	h.Release(first, 0)
	h.Release(second, 0)
	h.Release(later, 0)
	h.ReturnIdle()
	b.ApplyReports(1, h.NextReturn().Reports)
	if held := b.Pools[3].Outstanding(); held != 0 {
		t.Errorf("%d slots are outstanding at rest", held)
	}
}

// A reseller has a key with a spend limit for each of its customers: neither the
// messages nor the state of the account grow with the keys of the session.
func TestAccountWithTwentyThousandLimitedKeys(t *testing.T) {
	t.Parallel()
	const keys, most = 20_000, 64 << 10 // a sixteenth of the largest message of NATS
	a := allocator.New()
	a.Pools[1] = &allocator.Pool{ID: 1, Kind: wire.Balance, Central: true, Generation: 1, Total: 1 << 40, Free: 1 << 40}
	h := NewHolder(1, "b", "acc")
	returns := func() (reported int) {
		for ret := h.NextReturn(); ret != nil; ret = h.NextReturn() {
			if size := sizeOf(t, ret); size > most {
				t.Fatalf("a return of %d leases has %d bytes", len(ret.Reports), size)
			}
			reported += len(ret.Reports)
			a.ApplyReports(1, ret.Reports)
			h.ReturnDelivered(a.Settled(1, ret.Reports))
		}
		return reported
	}
	use := func(limit wire.PoolID) {
		w := h.Reserve([]wire.Need{need(1, wire.Balance, 10), need(limit, wire.Limit, 10)})
		request := h.NextRequest()
		response, _ := a.Decide(request, &allocator.PendingRequest{})
		if len(request.Reports) > 3 || len(response.Leases) > 3 {
			t.Fatalf("one request of one key reports %d leases and gets %d", len(request.Reports), len(response.Leases))
		}
		if h.HandleResponse(&response); !w.Granted() {
			t.Fatalf("key %d: %+v", limit, response)
		}
		h.Release(w, 4)
		returns()
	}
	for limit := range wire.PoolID(keys) {
		a.Pools[limit+10] = &allocator.Pool{ID: limit + 10, Kind: wire.Limit, Central: true, Generation: 1, Total: 100, Free: 100}
		use(limit + 10)
	}
	h.Resync()
	if reported := returns(); reported != keys+1 {
		t.Errorf("%d leases are reported after a loss of commits; want all %d", reported, keys+1)
	}
	h.ForgetSettled()
	h.ForgetSettled()
	if returns(); len(h.pools) != keys+1 {
		t.Fatalf("%d leases are left before their charges are settled; want all %d", len(h.pools), keys+1)
	}
	for limit := range wire.PoolID(keys) {
		a.Charge(1, false, 1, 4)
		a.Charge(1, false, limit+10, 4)
	}
	h.ForgetSettled()
	if returns(); !h.Unused() {
		t.Fatalf("%d leases are left after their charges were settled; want none", len(h.pools))
	}
	use(17) // the totals of a lease that was forgotten continue
	if l := a.Leases[allocator.LeaseKey{Pool: 17, Session: 1}]; *l != (allocator.Lease{Granted: 20, Returned: 12, Charged: 4, RecalledGeneration: l.RecalledGeneration}) || l.Outstanding() != 4 {
		t.Errorf("lease %+v after two requests with a cost of 4; want the second cost outstanding", *l)
	}
}

func sizeOf(t *testing.T, message any) int {
	t.Helper()
	text, err := json.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	return len(text)
}
