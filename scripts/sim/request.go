package sim

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"modelgateway/shared/apikey"
	"modelgateway/shared/lease"
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
	id       [16]byte
	p        *proxy
	customer *customer
	key      *key
	// secret is the one that the client has sent.
	secret    apikey.Hash
	amount    int64
	cost      int64
	duration  time.Duration
	needsSlot bool

	session wire.SessionID
	record  wire.KeyRecord
	version session.RecordVersion
	queue   *accountQueue
	waiter  *holder.Waiter
	// admittedAt is a time of the world's clock. lost means that the process of the request was killed.
	admittedAt           time.Duration
	started, ended, lost bool
	// written is the number of its started record on the disk.
	written int
	// windows are the pools of its windows, chosen at windowsAt; moves is how often it was moved to others.
	windows   []wire.PoolID
	windowsAt time.Duration
	moves     int
	// admitted, if not nil, is called when the request is admitted.
	admitted func()
}

// progress returns the cost of the request so far.
func (r *request) progress() int64 {
	return r.cost * int64(min(r.p.w.now-r.admittedAt, r.duration)) / int64(max(r.duration, 1))
}

func (r *request) SessionValid() bool {
	return r.session == r.p.session && r.session != 0 && r.p.valid(r.p.clock())
}

func (r *request) KeyCurrent() bool {
	return r.p.mayUse(&r.record) && r.p.w.rules.IsCurrent(&r.p.invalidations, r.version)
}

// mayUse reports whether the record of a key says that it may be used now.
func (p *proxy) mayUse(k *wire.KeyRecord) bool {
	return p.w.rules.Keys.Reason(k, func() time.Time { return time.UnixMilli(p.wallMS()) }) == ""
}

func (r *request) ReserveSpool() error {
	if r.p.usedCapacity() >= r.p.w.profile.SpoolCapacity*9/10 {
		return errSpoolFull
	}
	return nil
}

// accept passes a request to a proxy. Some clients wait while the proxy is stopped.
func (p *proxy) accept(r *request) {
	switch {
	case !p.alive || p.draining:
		return
	case p.halted > p.w.now:
		if p.w.r.IntN(4) == 0 {
			p.after(0, func() { p.accept(r) })
		}
		return
	}
	if r.p = p; r.secret == (apikey.Hash{}) {
		r.secret = p.w.secretOf(r.key)
	}
	p.w.stats.Requests++
	p.lookup(r, 4)
}

// lookup finds the record of the request's key.
func (p *proxy) lookup(r *request, attempts int) {
	w := p.w
	if found := p.cache[r.secret]; found != nil && w.rules.IsCurrent(&p.invalidations, found.version) {
		r.record, r.version = found.record, found.version
		p.admit(r)
		return
	}

	if p.invalidations.Revoked(r.secret) || attempts == 0 {
		return
	}

	asked := p.invalidations.Session()
	ask(
		p,
		"load",
		callTimeout,
		func(c *replica, reply func(wire.LoadKeyResponse)) { c.load(r.customer, r.key, r.secret, reply) },
		func(a wire.LoadKeyResponse) {
			reading := session.RecordVersion{
				Hash:     r.secret,
				Account:  r.customer.name,
				Revision: a.ReadRevision,
				Session:  asked,
			}
			if !w.rules.IsCurrent(&p.invalidations, reading) {
				w.stats.count("key lookups out of date")
				p.lookup(r, attempts-1)
				return
			}

			if a.Record == nil {
				w.stats.count("unknown keys")
				return
			}

			p.cache[r.secret] = &cached{*a.Record, reading}
			r.record, r.version = *a.Record, reading
			p.admit(r)
		},
		func() { p.readBucket(r, asked) },
	)
}

// admit admits a request, in the order of the protocol.
func (p *proxy) admit(r *request) {
	w := p.w
	if !p.mayUse(&r.record) {
		return
	}

	r.session = p.session
	switch outcome, _ := w.rules.GateBefore(lease.Gate{GateChecks: r}); outcome {
	case lease.Admitted:
	case lease.SpoolFull:
		w.stats.count("requests refused by a full spool")
		return
	default:
		w.stats.count("requests without a decision")
		return
	}

	p.reserved++
	q := p.queues[r.customer.name]
	if q == nil {
		q = p.newQueue(r.customer.name)
	}

	needs := []wire.Need{{Pool: r.record.BalancePool, Kind: wire.Balance, Amount: r.amount}}
	if r.record.LimitPool != 0 {
		needs = append(needs, wire.Need{Pool: r.record.LimitPool, Kind: wire.Limit, Amount: r.amount})
	}
	needs = append(needs, p.windowNeeds(r)...)
	for _, pool := range r.slots() {
		needs = append(needs, wire.Need{Pool: pool, Kind: wire.Slots, Amount: 1})
	}

	for _, n := range needs {
		q.needed[n.Pool] = true
	}

	r.queue = q
	covered := q.covers(needs)
	q.usedAt = p.clock().Mono
	r.waiter = q.queue.Reserve(p.clock().Mono, needs)
	switch {
	case covered && r.waiter != nil && !r.waiter.Granted():
		w.fail("liveness: %s lets a request of %s wait although idle units cover it", p.name, r.customer.name)
	case r.waiter == nil:
		p.reserved--
	case r.waiter.Granted():
		w.stats.count("admissions without a lease request")
		p.granted(r)
	case r.waiter.Aborted():
		w.stats.count("requests aborted at once")
		p.reserved--
		if !p.isResumed && (!p.failing || p.clock().Mono-p.failingSince < p.timing.DecisionTimeout) {
			w.fail("%s: a request is aborted at once although a control plane has decided something within the decision timeout", p.name)
		}
	default:
		q.waiting[r.waiter] = r
		q.pump()
	}
}

// granted starts a granted request after a short time, as a goroutine that waits
// would.
func (p *proxy) granted(r *request) {
	w := p.w
	p.running = append(p.running, r)
	d := w.between(0, 50*time.Microsecond)
	if w.chance(w.profile.SlowStart) {
		d = w.between(0, 200*time.Millisecond)
	}
	p.after(d, func() { p.checkAfterWait(r) })
}

// checkAfterWait checks session and key again, which may have changed during the
// wait, and starts the request.
func (p *proxy) checkAfterWait(r *request) {
	w := p.w
	l := p.usage.Session(r.session)
	if w.rules.GateAfter(lease.Gate{GateChecks: r}) != lease.Admitted || !l.AcceptsRequests() {
		w.stats.count("requests rejected after their wait")
		p.reserved--
		p.release(r, 0)
		return
	}

	p.reserved--
	p.started++
	r.admittedAt = w.now
	w.stats.Admitted++
	if r.admitted != nil {
		r.admitted()
	}

	w.checkAdmission(r)
	l.Running++
	r.started = true
	p.disk.started[r.id] = r
	r.written = p.disk.write()
	p.after(r.duration, func() { p.finish(r, r.cost) })
}

// finish ends a running request with its cost.
func (p *proxy) finish(r *request, cost int64) {
	if r.ended || r.lost {
		return
	}
	p.started--
	p.usage.Session(r.session).Running--
	delete(p.disk.started, r.id)
	p.recordUsage(r, cost)
	event := p.w.oracle.events[r.id]
	event.used = min(cost, r.amount)
	p.w.oracle.used[r.key.limit] += event.used
	for _, pool := range r.windows {
		p.w.oracle.used[pool] += event.used
	}
	p.release(r, cost)
}

func (p *proxy) release(r *request, cost int64) {
	r.ended = true
	p.running = slices.DeleteFunc(p.running, func(x *request) bool { return x == r })
	p.w.rules.Release(r.queue, r.waiter, cost)
	r.queue.pump()
}

func sortedIDs[V any](m map[[16]byte]V) [][16]byte {
	return slices.SortedFunc(maps.Keys(m), func(a, b [16]byte) int { return cmp.Compare(string(a[:]), string(b[:])) })
}
