package holder

import (
	"fmt"
	"math/rand/v2"
	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/wire"
	"testing"
)

// world is a small model of proxies, messages and the control plane: messages
// are lost, doubled and delayed, and every step checks the invariants.
type world struct {
	t       reporter
	v       variant
	r       *rand.Rand
	book    *allocator.Allocator
	dps     []*proxy
	ops     []*wire.LeaseRequest
	replies []wire.LeaseResponse
	returns []*wire.Return
	recalls []recall
	weights [12]int
	total   int
	waits   int
	results map[wire.SessionID]wire.LeaseResponse
	stays   map[*wire.LeaseRequest]*allocator.PendingRequest
	charges []charge
	spent   map[wire.PoolID]int64
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
}

func need(pool wire.PoolID, kind wire.Kind, amount int64) wire.Need {
	return wire.Need{Pool: pool, Kind: kind, Amount: amount}
}

func newWorld(t reporter, v variant, seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, 7))
	w := &world{t: t, v: v, r: r, book: allocator.New(), results: map[wire.SessionID]wire.LeaseResponse{}, stays: map[*wire.LeaseRequest]*allocator.PendingRequest{}, spent: map[wire.PoolID]int64{}}
	for i := range w.weights {
		w.weights[i] = 1 + r.IntN(3)*r.IntN(8)
		w.total += w.weights[i]
	}
	totals := []int64{r.Int64N(5000), r.Int64N(3000), 1 + r.Int64N(4)}
	for i, kind := range []wire.Kind{wire.Balance, wire.KeyLimit, wire.Slots} {
		id := wire.PoolID(i + 1)
		w.book.Pools[id] = &allocator.Pool{ID: id, Kind: kind, Central: true, Generation: 1, Total: totals[i], Free: totals[i]}
	}
	for i := range 1 + r.IntN(4) {
		id := wire.SessionID(i + 1)
		w.dps = append(w.dps, &proxy{id: id, h: NewHolder(id, "boot", "acc")})
	}
	return w
}

// action draws what happens next. How likely each thing is differs from seed
// to seed: some faults show only where replies are slow, others where recalls
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
	dp := w.dps[w.r.IntN(len(w.dps))]
	switch w.action() {
	case 0, 1:
		amount := 1 + w.r.Int64N(400)
		t := dp.h.Reserve([]wire.Need{need(1, wire.Balance, amount), need(2, wire.KeyLimit, amount), need(3, wire.Slots, 1)})
		dp.waiting = append(dp.waiting, t)
	case 2:
		if len(dp.running) > 0 {
			i := w.r.IntN(len(dp.running))
			cost := w.r.Int64N(500) // may exceed what was reserved
			w.v.finish(dp.h, dp.running[i], cost)
			dp.running = append(dp.running[:i], dp.running[i+1:]...)
			w.charges = append(w.charges, charge{dp.id, cost})
		}
	case 3:
		if len(dp.waiting) > 0 {
			i := w.r.IntN(len(dp.waiting))
			if gone, _ := dp.h.Cancel(dp.waiting[i]); gone {
				dp.waiting = append(dp.waiting[:i], dp.waiting[i+1:]...)
			}
		}
	case 4:
		w.deliverOp()
	case 5:
		w.deliverReply()
	case 6:
		w.deliverReturn()
	case 7:
		w.settle()
	case 8:
		w.send(dp)
	case 9:
		p := w.book.Pools[wire.PoolID(1+2*w.r.IntN(2))]
		if p.Free > p.Total/4 && w.r.IntN(4) == 0 {
			p.EnterEscrow()
		}
	case 10:
		w.deliverRecall()
	case 11:
		if w.r.IntN(10) == 0 {
			dp.h.ReturnIdle()
		}
	}
	w.check()
}

func (w *world) send(dp *proxy) {
	if op := dp.h.NextRequest(); op != nil {
		w.ops = append(w.ops, op)
	} else if dp.h.request != nil && w.r.IntN(2) == 0 {
		w.ops = append(w.ops, dp.h.request) // sent again
	}
	if ret := dp.h.NextReturn(); ret != nil {
		w.returns = append(w.returns, ret)
	} else if dp.h.ret != nil && w.r.IntN(2) == 0 {
		w.returns = append(w.returns, dp.h.ret)
	}
}

// pick takes a random message; now and then it stays in flight too (doubled).
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
	return m, w.r.IntN(6) > 0 // or lost
}

func (w *world) deliverOp() {
	op, ok := pick(w, &w.ops)
	if !ok {
		return
	}
	last, known := w.results[op.Session]
	switch {
	case known && op.Number < last.Number:
		return
	case known && op.Number == last.Number:
		w.replies = append(w.replies, last)
		return
	}
	w.begin()
	stay := w.stays[op]
	if stay == nil {
		stay = &allocator.PendingRequest{}
		w.stays[op] = stay
	}
	stay.MayWait, stay.ResendRecall = w.r.IntN(2) == 0, w.r.IntN(2) == 0
	reply, decided := w.v.op(w.book, op, stay)
	w.sendRecalls()
	if !decided {
		w.ops = append(w.ops, op) // it lingers, and is looked at again
		return
	}
	if reply.Status == wire.Wait {
		w.waits++
		w.replies = append(w.replies, reply)
		return
	}
	w.results[op.Session] = reply
	for i, d := range reply.Decisions {
		if !d.Granted {
			w.mustBeShort(op, i, reply)
		}
	}
	w.replies = append(w.replies, reply)
}

// begin does what the control plane does before it asks a Book.
func (w *world) begin() {
	w.book.Recalls = map[wire.PoolID]string{}
}

func (w *world) sendRecalls() {
	recalls := w.book.ToRecall()
	for _, dp := range w.dps {
		for _, r := range recalls[dp.id] {
			w.recalls = append(w.recalls, recall{dp.id, r.Pool, r.Generation})
		}
	}
}

func (w *world) deliverRecall() {
	if m, ok := pick(w, &w.recalls); ok {
		w.dps[m.session-1].h.HandleRecall(m.pool, m.gen)
	}
}

// nobodyIdles checks the barrier: when a request was refused for want of a
// pool, no session held units of it that no request was using. Units in a
// reply on its way are used if they were granted to a request, idle if they
// are a slice.
func (w *world) nobodyIdles(pool wire.PoolID) {
	for _, dp := range w.dps {
		l, p := w.book.Leases[allocator.LeaseKey{Pool: pool, Session: dp.id}], dp.h.pools[pool]
		if l == nil || p == nil {
			continue
		}
		used := p.returned + p.charged + p.running
		if last, op := w.results[dp.id], dp.h.request; op != nil && op.Number == last.Number {
			for i, d := range last.Decisions {
				for _, n := range op.Needs[i] {
					if d.Granted && n.Pool == pool {
						used += n.Amount
					}
				}
			}
		}
		if idle := l.Granted - used; idle > 0 {
			w.t.Fatalf("refused for want of pool %d while session %d idles %d: lease %+v, holding %+v, pool %+v, op %+v", pool, dp.id, idle, *l, *p, *w.book.Pools[pool], dp.h.request)
		}
	}
}

// heldKind is the kind of pool that a refusal says is held. A spent pool is
// refused without a recall: nothing that comes back would do.
var heldKind = map[wire.Reason]wire.Kind{wire.NoSlot: wire.Slots, wire.KeyLimitReserved: wire.KeyLimit, wire.BalanceReserved: wire.Balance}

// A refusal is right only if, after the grants before it, some pool had less
// than was needed.
func (w *world) mustBeShort(op *wire.LeaseRequest, i int, reply wire.LeaseResponse) {
	for _, n := range op.Needs[i] {
		if kind, ok := heldKind[reply.Decisions[i].Reason]; ok && kind == n.Kind {
			w.nobodyIdles(n.Pool)
		}
		free := w.book.Pools[n.Pool].Free
		for j, d := range reply.Decisions {
			if j > i && d.Granted {
				for _, m := range op.Needs[j] {
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
	w.t.Fatalf("request %d of %+v was refused (%s) with enough of everything", i, op, reply.Decisions[i].Reason)
}

func (w *world) deliverReply() {
	reply, ok := pick(w, &w.replies)
	if !ok {
		return
	}
	for _, dp := range w.dps {
		if reply.Status == wire.Wait || w.results[dp.id].Number == 0 || dp.h.request == nil || dp.h.request.Number != reply.Number || !sameReply(w.results[dp.id], reply) {
			continue
		}
		for _, t := range dp.h.HandleResponse(&reply) {
			if t.Granted() {
				dp.running = append(dp.running, t)
			}
			for i := range dp.waiting {
				if dp.waiting[i] == t {
					dp.waiting = append(dp.waiting[:i], dp.waiting[i+1:]...)
					break
				}
			}
		}
		return
	}
}

func sameReply(a, b wire.LeaseResponse) bool {
	return fmt.Sprintf("%p", a.Decisions) == fmt.Sprintf("%p", b.Decisions)
}

func (w *world) deliverReturn() {
	ret, ok := pick(w, &w.returns)
	if !ok {
		return
	}
	w.v.report(w.book, ret.Session, ret.Reports)
	if w.r.IntN(4) > 0 {
		for _, dp := range w.dps {
			if dp.h.ret == ret {
				dp.h.ReturnDelivered()
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
	closed := w.dps[c.session-1].closed
	w.v.charge(w.book, c.session, closed, 1, c.cost)
	w.v.charge(w.book, c.session, closed, 2, c.cost)
	w.spent[1] += c.cost
	w.spent[2] += c.cost
}

func (w *world) check() {
	w.t.Helper()
	for id, p := range w.book.Pools {
		held := int64(0)
		for key, l := range w.book.Leases {
			if key.Pool != id {
				continue
			}
			if l.Outstanding() < 0 {
				w.t.Fatalf("lease %v holds %d", key, l.Outstanding())
			}
			held += l.Outstanding()
		}
		if p.Total != p.Free+held+p.Settled {
			w.t.Fatalf("pool %d: total %d, free %d, held %d, settled %d", id, p.Total, p.Free, held, p.Settled)
		}
		if p.Settled != w.spent[id] {
			w.t.Fatalf("pool %d: settled %d, charged %d", id, p.Settled, w.spent[id])
		}
		if p.Free < -(p.Overrun + p.Late) {
			w.t.Fatalf("pool %d: free %d below overrun %d and late %d", id, p.Free, p.Overrun, p.Late)
		}
	}
	slots := 0
	for _, dp := range w.dps {
		slots += len(dp.running)
		for id, p := range dp.h.pools {
			// Cover: what runs and what is charged was granted, but for overruns.
			l := w.book.Leases[allocator.LeaseKey{Pool: id, Session: dp.id}]
			if p.running > 0 && (l == nil || l.Granted < p.granted) {
				w.t.Fatalf("session %d runs %d of pool %d on %+v", dp.id, p.running, id, l)
			}
		}
	}
	if total := w.book.Pools[3].Total; int64(slots) > total {
		w.t.Fatalf("%d requests run on %d slots", slots, total)
	}
}

// drain lets everything arrive, and checks that nothing stays held.
func (w *world) drain() {
	for range 20 {
		for _, dp := range w.dps {
			dp.h.ReturnIdle()
			for _, t := range dp.running {
				w.v.finish(dp.h, t, 1)
				w.charges = append(w.charges, charge{dp.id, 1})
			}
			dp.running = nil
			if op := dp.h.NextRequest(); op != nil || dp.h.request != nil {
				op = dp.h.request
				reply, known := w.results[dp.id]
				if !known || reply.Number < op.Number {
					w.begin()
					reply, _ = w.v.op(w.book, op, &allocator.PendingRequest{})
					w.sendRecalls()
					for len(w.recalls) > 0 {
						w.deliverRecall()
					}
					if reply.Status == wire.Done {
						w.results[dp.id] = reply
					}
				}
				for _, t := range dp.h.HandleResponse(&reply) {
					if t.Granted() {
						dp.running = append(dp.running, t)
					}
				}
			}
			for dp.h.ret != nil || dp.h.NextReturn() != nil {
				w.v.report(w.book, dp.id, dp.h.ret.Reports)
				dp.h.ReturnDelivered()
			}
		}
		for len(w.charges) > 0 {
			w.settle()
		}
		w.check()
	}
	for id, p := range w.book.Pools {
		if p.Outstanding() != 0 {
			w.t.Fatalf("pool %d: %d still held when nothing runs", id, p.Outstanding())
		}
	}
}

// run plays a whole life of the world. In the end some sessions go without a
// word: what they hold comes back, what they owe is charged late.
func (w *world) run() {
	for range 400 {
		w.step()
	}
	if w.r.IntN(2) == 0 {
		w.drain()
	}
	for _, dp := range w.dps {
		dp.closed = true
		w.v.close(w.book, dp.id)
	}
	w.charges = append(w.charges, charge{1, 5})
	for len(w.charges) > 0 {
		w.settle()
		w.check()
	}
	for id, p := range w.book.Pools {
		if p.Outstanding() != 0 {
			w.t.Fatalf("pool %d: %d held after every session closed", id, p.Outstanding())
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
		want                  wire.Reason
	}{
		{"limit spent before all", allocator.Pool{Total: 5, Free: 5, Settled: 0}, allocator.Pool{Total: 5, Free: 5}, allocator.Pool{}, wire.KeyLimitSpent},
		{"balance spent", allocator.Pool{Total: 5, Free: 5}, allocator.Pool{Total: 100, Free: 100}, allocator.Pool{}, wire.BalanceSpent},
		{"no slot before held", allocator.Pool{Total: 100}, allocator.Pool{Total: 100}, allocator.Pool{Total: 1}, wire.NoSlot},
		{"limit held before balance held", allocator.Pool{Total: 100}, allocator.Pool{Total: 100}, allocator.Pool{Total: 1, Free: 1}, wire.KeyLimitReserved},
		{"balance held", allocator.Pool{Total: 100}, allocator.Pool{Total: 100, Free: 100}, allocator.Pool{Total: 1, Free: 1}, wire.BalanceReserved},
		{"granted", allocator.Pool{Total: 100, Free: 10}, allocator.Pool{Total: 100, Free: 10}, allocator.Pool{Total: 1, Free: 1}, ""},
		{"unlimited refuses nothing", allocator.Pool{Total: 100, Free: 10}, allocator.Pool{Unlimited: true, Free: -50, Settled: 50}, allocator.Pool{Total: 1, Free: 1}, ""},
	}
	for _, tt := range tests {
		b := allocator.New()
		for i, p := range []allocator.Pool{tt.balance, tt.limit, tt.slots} {
			p.ID, p.Kind, p.Central, p.Generation = wire.PoolID(i+1), wire.Kind(i+1), true, 1
			b.Pools[p.ID] = &p
		}
		reply, _ := b.Decide(&wire.LeaseRequest{Session: 1, Number: 1, Needs: [][]wire.Need{{need(1, wire.Balance, 10), need(2, wire.KeyLimit, 10), need(3, wire.Slots, 1)}}}, &allocator.PendingRequest{})
		if got := reply.Decisions[0].Reason; got != tt.want || reply.Decisions[0].Granted != (tt.want == "") {
			t.Errorf("%s: got %+v; want %q", tt.name, reply.Decisions[0], tt.want)
		}
		if tt.want != "" && len(b.Leases) != 0 {
			t.Errorf("%s: a refusal left %d leases", tt.name, len(b.Leases))
		}
	}
}

// A misfit does not stop those behind it.
func TestOpDecidesEachRequest(t *testing.T) {
	t.Parallel()
	b := allocator.New()
	b.Pools[1] = &allocator.Pool{ID: 1, Kind: wire.Balance, Central: true, Generation: 1, Total: 100, Free: 100}
	op := &wire.LeaseRequest{Session: 1, Number: 1}
	for _, amount := range []int64{60, 50, 40, 1} {
		op.Needs = append(op.Needs, []wire.Need{need(1, wire.Balance, amount)})
	}
	reply, decided := b.Decide(op, &allocator.PendingRequest{})
	if !decided {
		t.Fatal("undecided without patience")
	}
	var got []bool
	for _, d := range reply.Decisions {
		got = append(got, d.Granted)
	}
	if want := fmt.Sprint([]bool{true, false, true, false}); fmt.Sprint(got) != want {
		t.Errorf("got %v; want %v", got, want)
	}
}

func TestPatienceWaitsForReturns(t *testing.T) {
	t.Parallel()
	b := allocator.New()
	b.Pools[3] = &allocator.Pool{ID: 3, Kind: wire.Slots, Central: true, Generation: 1, Total: 1, Free: 1}
	first := NewHolder(1, "b", "acc")
	running := first.Reserve([]wire.Need{need(3, wire.Slots, 1)})
	reply, _ := b.Decide(first.NextRequest(), &allocator.PendingRequest{MayWait: true})
	first.HandleResponse(&reply)
	second := NewHolder(2, "b", "acc")
	ticket := second.Reserve([]wire.Need{need(3, wire.Slots, 1)})
	op := second.NextRequest()
	if _, decided := b.Decide(op, &allocator.PendingRequest{MayWait: true}); decided {
		t.Fatal("refused while the slot could still come back")
	}
	first.Release(running, 0)
	b.ApplyReports(1, first.NextReturn().Reports)
	reply, decided := b.Decide(op, &allocator.PendingRequest{MayWait: true})
	if second.HandleResponse(&reply); !decided || !ticket.Granted() {
		t.Fatalf("decided %v, granted %v; want both after the return", decided, ticket.Granted())
	}
}

func TestFencedSessionLosesItsWaiters(t *testing.T) {
	t.Parallel()
	h := NewHolder(1, "b", "acc")
	a, b := h.Reserve([]wire.Need{need(1, wire.Balance, 1)}), h.Reserve([]wire.Need{need(1, wire.Balance, 1)})
	h.NextRequest()
	c := h.Reserve([]wire.Need{need(1, wire.Balance, 1)})
	h.Cancel(b)
	if got := h.HandleResponse(&wire.LeaseResponse{Status: wire.Fenced}); len(got) != 2 || !a.Aborted() || b.Aborted() || !c.Aborted() {
		t.Errorf("lost %d tickets", len(got))
	}
	if h.NextRequest() != nil {
		t.Error("a lost holder still asks")
	}
}

func TestRecallIsAnsweredEvenWithNothingIdle(t *testing.T) {
	t.Parallel()
	b := allocator.New()
	b.Pools[1] = &allocator.Pool{ID: 1, Kind: wire.Balance, Central: true, Generation: 1, Total: 10, Free: 10}
	h := NewHolder(1, "b", "acc")
	h.Reserve([]wire.Need{need(1, wire.Balance, 10)})
	reply, _ := b.Decide(h.NextRequest(), &allocator.PendingRequest{})
	h.HandleResponse(&reply)
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
	if h.ReturnDelivered(); h.NextReturn() != nil {
		t.Error("the recall is answered twice")
	}
}

func TestDistrustGivesBackWhatIsIdle(t *testing.T) {
	t.Parallel()
	b := allocator.New()
	b.Pools[1] = &allocator.Pool{ID: 1, Kind: wire.Balance, Generation: 2, Total: 1000, Free: 1000}
	h := NewHolder(1, "b", "acc")
	first := h.Reserve([]wire.Need{need(1, wire.Balance, 10)})
	reply, _ := b.Decide(h.NextRequest(), &allocator.PendingRequest{MayWait: true})
	if h.HandleResponse(&reply); !first.Granted() {
		t.Fatal("not granted")
	}
	if second := h.Reserve([]wire.Need{need(1, wire.Balance, 10)}); !second.Granted() {
		t.Fatal("a slice did not serve the next request")
	}
	h.DisableEscrow()
	said := h.NextReturn()
	// A recall that comes later is not answered by what was said before it: something may have come back since.
	b.Pools[1].Central, b.Pools[1].Generation = true, 3
	b.ApplyReports(1, said.Reports)
	if got := b.Leases[allocator.LeaseKey{Pool: 1, Session: 1}]; got.Outstanding() != 20 || got.RecalledGeneration == 3 {
		t.Errorf("lease %+v after distrust; want the two running requests' 20, not yet recalled", *got)
	}
	h.ReturnDelivered()
	h.Release(first, 4)
	h.HandleRecall(1, 3)
	b.ApplyReports(1, h.NextReturn().Reports)
	if got := b.Leases[allocator.LeaseKey{Pool: 1, Session: 1}]; got.Outstanding() != 14 || got.RecalledGeneration != 3 {
		t.Errorf("lease %+v after the recall; want it answered", *got)
	}
	if third := h.Reserve([]wire.Need{need(1, wire.Balance, 10)}); third.Granted() {
		t.Error("admitted without asking after distrust")
	}
}

// What an answer says that was under way when the holder was told to distrust
// is from before the change, and of the next one from after it.
func TestTrustComesBackWithTheNextOp(t *testing.T) {
	t.Parallel()
	b := allocator.New()
	b.Pools[1] = &allocator.Pool{ID: 1, Kind: wire.Balance, Generation: 2, Total: 1000, Free: 1000}
	h, need := NewHolder(1, "b", "acc"), []wire.Need{need(1, wire.Balance, 10)}
	h.Reserve(need)
	late, _ := b.Decide(h.NextRequest(), &allocator.PendingRequest{MayWait: true})
	h.DisableEscrow()
	h.HandleResponse(&late)
	if idle := h.pools[1].idle(); idle != 0 || h.NextReturn() == nil {
		t.Fatalf("%d are held idle by a word from before the change", idle)
	}
	h.ReturnDelivered()
	h.Reserve(need)
	reply, _ := b.Decide(h.NextRequest(), &allocator.PendingRequest{MayWait: true})
	h.HandleResponse(&reply)
	if !h.Reserve(need).Granted() {
		t.Error("no slice serves any more, though the pool has room")
	}
}

// A pool that never runs short does not pile up while another one does.
func TestOpsDoNotPileUpIdleUnits(t *testing.T) {
	t.Parallel()
	b := allocator.New()
	b.Pools[1] = &allocator.Pool{ID: 1, Kind: wire.Balance, Generation: 2, Total: 10_000_000, Free: 10_000_000}
	b.Pools[3] = &allocator.Pool{ID: 3, Kind: wire.Slots, Generation: 2, Total: 100_000, Free: 100_000}
	h := NewHolder(1, "b", "acc")
	asked := 0
	for range 2000 {
		ticket := h.Reserve([]wire.Need{need(1, wire.Balance, 10), need(3, wire.Slots, 1)})
		if op := h.NextRequest(); op != nil {
			asked++
			reply, _ := b.Decide(op, &allocator.PendingRequest{MayWait: true})
			h.HandleResponse(&reply)
		}
		if !ticket.Granted() {
			t.Fatalf("not granted after %d ops: %+v", asked, ticket.Decision())
		}
		h.Release(ticket, 10)
	}
	if held := b.Pools[3].Outstanding(); held > 1+allocator.AllotmentNeeds {
		t.Errorf("%d slots are held after %d ops; want one allotment at most", held, asked)
	}
	if asked > 2000/allocator.AllotmentNeeds+1 {
		t.Errorf("%d lease requests for 2000 requests; want one for each allotment of the balance", asked)
	}
}

// Who comes while an op is under way is admitted from the slice that it
// brings, in order, and does not make another op.
func TestSliceServesThoseWhoCameMeanwhile(t *testing.T) {
	t.Parallel()
	b := allocator.New()
	b.Pools[1] = &allocator.Pool{ID: 1, Kind: wire.Balance, Generation: 2, Total: 1_000_000, Free: 1_000_000}
	h := NewHolder(1, "b", "acc")
	h.Reserve([]wire.Need{need(1, wire.Balance, 10)})
	op := h.NextRequest()
	second, large, fourth := h.Reserve([]wire.Need{need(1, wire.Balance, 10)}), h.Reserve([]wire.Need{need(1, wire.Balance, 10_000)}), h.Reserve([]wire.Need{need(1, wire.Balance, 10)})
	reply, _ := b.Decide(op, &allocator.PendingRequest{MayWait: true})
	if got := h.HandleResponse(&reply); len(got) != 2 || got[1] != second || !second.Granted() {
		t.Fatalf("%d tickets decided, the second granted: %t; want two, granted", len(got), second.Granted())
	}
	if large.Granted() || fourth.Granted() {
		t.Error("admitted without cover, or before one who came earlier")
	}
	if op = h.NextRequest(); op == nil || len(op.Needs) != 2 {
		t.Errorf("the next op is %+v; want one for the two that are left", op)
	}
}

// allotted returns the Holder of session 1 with an allotment of pool 1.
func allotted(t *testing.T, b *allocator.Allocator, need []wire.Need) *Holder {
	t.Helper()
	h := NewHolder(1, "b", "acc")
	h.Reserve(need)
	reply, _ := b.Decide(h.NextRequest(), &allocator.PendingRequest{MayWait: true})
	if h.HandleResponse(&reply); !h.Reserve(need).Granted() {
		t.Fatal("the allotment does not serve the next request")
	}
	return h
}

// While an op is not answered, who is covered does not wait for longer than the
// one before it who is not.
func TestNobodyWaitsBehindThoseWhoGaveUp(t *testing.T) {
	t.Parallel()
	b := allocator.New()
	b.Pools[1] = &allocator.Pool{ID: 1, Kind: wire.Balance, Generation: 2, Total: 10_000_000, Free: 10_000_000}
	small := []wire.Need{need(1, wire.Balance, 10)}
	h := allotted(t, b, small)
	large, second, third := h.Reserve([]wire.Need{need(1, wire.Balance, 1_000_000)}), h.Reserve(small), h.Reserve(small)
	if second.Granted() || third.Granted() {
		t.Fatal("admitted before one who came earlier")
	}
	gone, admitted := h.Cancel(large)
	if !gone || len(admitted) != 2 || !second.Granted() || !third.Granted() {
		t.Errorf("gone: %t, %d admitted; want the two who are covered", gone, len(admitted))
	}
}
