package sim

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"modelgateway/shared/lease/holder"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

// customer is an account with its keys.
type customer struct {
	name           string
	balance, slots wire.PoolID
	keys           []*key
}

// request is one request of a client.
type request struct {
	id      [16]byte
	p       *proxy
	cust    *customer
	key     *key
	amount  int64
	cost    int64
	lasts   time.Duration
	slotted bool

	session wire.SessionID
	record  wire.KeyRecord
	reading session.RecordVersion
	desk    *desk
	ticket  *holder.Waiter
	// begun is when it was admitted, by the world's clock. gone: its process is dead.
	begun                time.Duration
	started, ended, gone bool
}

// progress is what the request has cost so far.
func (r *request) progress() int64 {
	return r.cost * int64(min(r.p.w.now-r.begun, r.lasts)) / int64(max(r.lasts, 1))
}

// SessionValid implements lease.Checks.
func (r *request) SessionValid() bool {
	return r.session == r.p.session && r.session != 0 && r.p.w.rules.Before(r.p.clock(), r.p.deadline)
}

// KeyCurrent implements lease.Checks.
func (r *request) KeyCurrent() bool {
	return r.record.Active && r.p.w.rules.Current(&r.p.known, r.reading)
}

// Reserve implements lease.Checks.
func (r *request) ReserveSpool() error {
	if r.p.used() >= r.p.w.profile.Spool*9/10 {
		return errFull
	}
	return nil
}

// desk is where the requests of one account in one session wait.
type desk struct {
	p            *proxy
	session      wire.SessionID
	holder       *holder.Holder
	op           *wire.LeaseRequest
	ret          *wire.Return
	lost, closed bool
	// before is what the sessions of the account had given back when the op was made.
	before  map[wire.SessionID]map[wire.PoolID]int64
	waiting map[*holder.Waiter]*request
	used    time.Duration
}

// arrive begins a request at a proxy. Some clients wait for one that stands
// still.
func (p *proxy) arrive(r *request) {
	switch {
	case !p.alive || p.draining:
		return
	case p.halted > p.w.now:
		if p.w.r.IntN(4) == 0 {
			p.after(0, func() { p.arrive(r) })
		}
		return
	}
	r.p = p
	p.w.stats.Requests++
	p.lookup(r, 4)
}

// lookup finds the record of the request's key.
func (p *proxy) lookup(r *request, attempts int) {
	w := p.w
	if found := p.cache[r.key.hash]; found != nil && w.rules.Current(&p.known, found.reading) {
		r.record, r.reading = found.record, found.reading
		p.begin(r)
		return
	}
	if p.known.Revoked(r.key.hash) || attempts == 0 {
		return
	}
	asked := p.known.Session()
	ask(p, "load", callTimeout, func(c *replica, reply func(wire.LoadKeyResponse)) { c.load(r.cust, r.key, reply) }, func(a wire.LoadKeyResponse) {
		reading := session.RecordVersion{Hash: r.key.hash, Account: r.cust.name, Revision: a.ReadRevision, Session: asked}
		if !w.rules.Current(&p.known, reading) {
			w.stats.count("loads overtaken")
			p.lookup(r, attempts-1)
			return
		}
		if a.Record == nil {
			w.stats.count("unknown keys")
			return
		}
		p.cache[r.key.hash] = &cached{*a.Record, reading}
		r.record, r.reading = *a.Record, reading
		p.begin(r)
	}, nil)
}

// begin admits a request, in the order of the protocol.
func (p *proxy) begin(r *request) {
	w := p.w
	if !r.record.Active {
		return
	}
	r.session = p.session
	switch outcome, _ := w.rules.Begin(holder.AdmissionGate{GateChecks: r}); outcome {
	case holder.Admitted:
	case holder.SpoolFull:
		w.stats.count("requests without a place in the spool")
		return
	default:
		w.stats.count("requests in doubt")
		return
	}
	p.reserved++
	d := p.desks[r.cust.name]
	if d == nil {
		d = &desk{p: p, session: p.session, holder: holder.NewHolder(p.session, p.boot, r.cust.name), waiting: map[*holder.Waiter]*request{}}
		p.desks[r.cust.name] = d
	}
	if d.lost || d.closed {
		p.reserved--
		return
	}
	needs := []wire.Need{{Pool: r.record.BalancePool, Kind: wire.Balance, Amount: r.amount}}
	if r.record.LimitPool != 0 {
		needs = append(needs, wire.Need{Pool: r.record.LimitPool, Kind: wire.KeyLimit, Amount: r.amount})
	}
	if r.slotted {
		needs = append(needs, wire.Need{Pool: r.record.SlotsPool, Kind: wire.Slots, Amount: 1})
	}
	r.desk, d.used = d, p.clock().Mono
	r.ticket = d.holder.Reserve(needs)
	if r.ticket.Granted() {
		w.stats.count("admissions without a hop")
		p.granted(r)
		return
	}
	d.waiting[r.ticket] = r
	d.talk()
	p.after(patience, func() {
		if d.waiting[r.ticket] != r {
			return
		}
		delete(d.waiting, r.ticket)
		_, admitted := d.holder.Cancel(r.ticket)
		w.stats.count("requests in doubt")
		p.reserved--
		d.wake(admitted)
	})
}

// granted has the request run soon: its goroutine may be slow.
func (p *proxy) granted(r *request) {
	w := p.w
	p.running = append(p.running, r)
	d := w.between(0, 50*time.Microsecond)
	if w.chance(w.profile.Slow) {
		d = w.between(0, 200*time.Millisecond)
	}
	p.after(d, func() { p.complete(r) })
}

// complete asks again what may have changed, and starts the request.
func (p *proxy) complete(r *request) {
	w := p.w
	l := p.usage.Session(r.session)
	if w.rules.Complete(holder.AdmissionGate{GateChecks: r}) != holder.Admitted || !l.AcceptsRequests() {
		w.stats.count("requests overtaken")
		p.reserved--
		p.over(r, 0)
		return
	}
	p.reserved--
	p.started++
	r.begun = w.now
	w.stats.Admitted++
	w.checkAdmission(r)
	l.Running++
	r.started = true
	p.disk.started[r.id] = r
	p.after(r.lasts, func() { p.finish(r, r.cost) })
}

// finish ends a running request with its cost.
func (p *proxy) finish(r *request, cost int64) {
	if r.ended || r.gone {
		return
	}
	p.started--
	p.usage.Session(r.session).Running--
	delete(p.disk.started, r.id)
	p.record(r, cost)
	p.over(r, cost)
}

func (p *proxy) over(r *request, cost int64) {
	r.ended = true
	p.running = slices.DeleteFunc(p.running, func(x *request) bool { return x == r })
	p.w.rules.Finish(r.desk.holder, r.ticket, cost)
	r.desk.talk()
}

// lose sends away who waits.
func (d *desk) lose() {
	d.lost, d.op = true, nil
	d.wake(d.holder.AbortWaiters())
}

func (d *desk) wake(tickets []*holder.Waiter) {
	w := d.p.w
	for _, t := range tickets {
		r := d.waiting[t]
		if r == nil {
			continue
		}
		delete(d.waiting, t)
		switch {
		case t.Granted():
			w.stats.count("admissions by an op")
			d.p.granted(r)
		case t.Refused():
			if t.Decision().Reason == "" {
				w.fail("I5: %s refuses a request without a reason", d.p.name)
			}
			w.stats.Refused++
			w.stats.count("refused: " + string(t.Decision().Reason))
			d.p.reserved--
		default:
			w.stats.count("requests in doubt")
			d.p.reserved--
		}
	}
}

// talk sends what there is to send.
func (d *desk) talk() {
	if d.closed {
		return
	}
	if d.op == nil && !d.lost {
		if d.op = d.holder.NextRequest(); d.op != nil {
			d.before = d.p.w.givenBack(d.op)
			d.p.w.log("%s: op %d of session %d asks %v", d.p.name, d.op.Number, d.op.Session, d.op.Needs)
			d.sendOp(d.op, 60*time.Millisecond)
		}
	}
	if d.ret == nil {
		if d.ret = d.holder.NextReturn(); d.ret != nil {
			d.sendReturn(d.ret)
		}
	}
}

// sendOp repeats an op until it is answered.
func (d *desk) sendOp(op *wire.LeaseRequest, retry time.Duration) {
	if d.op != op {
		return
	}
	d.p.w.stats.Messages++
	ask(d.p, "op", 0, func(c *replica, reply func(wire.LeaseResponse)) {
		c.enqueue(&work{op: op, opDone: reply})
	}, func(a wire.LeaseResponse) {
		if d.op == op && (a.Status == wire.Fenced || a.Status == wire.Done && a.Number == op.Number && len(a.Decisions) == len(op.Needs)) {
			d.op = nil
			d.p.w.log("%s: op %d of session %d is answered: %s", d.p.name, op.Number, op.Session, a.Status)
			d.wake(d.p.w.rules.Answer(d.holder, &a))
			d.talk()
		}
	}, nil)
	d.p.after(retry+d.p.w.between(0, 30*time.Millisecond), func() { d.sendOp(op, min(retry*3/2, time.Second)) })
}

// sendReturn repeats a return until it has arrived.
func (d *desk) sendReturn(ret *wire.Return) {
	if d.ret != ret {
		return
	}
	ask(d.p, "return", 0, func(c *replica, reply func(wire.ReturnResponse)) {
		c.enqueue(&work{ret: ret, retDone: reply})
	}, func(a wire.ReturnResponse) {
		if d.ret == ret && (a.Status == wire.Done || a.Status == wire.Fenced) {
			d.ret = nil
			d.holder.ReturnDelivered()
			d.closed = a.Status == wire.Fenced
			d.talk()
		}
	}, nil)
	d.p.after(250*time.Millisecond, func() { d.sendReturn(ret) })
}

func sortedIDs[V any](m map[[16]byte]V) [][16]byte {
	return slices.SortedFunc(maps.Keys(m), func(a, b [16]byte) int { return cmp.Compare(string(a[:]), string(b[:])) })
}
