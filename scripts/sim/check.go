package sim

import (
	"slices"
	"time"

	"modelgateway/shared/apikey"
	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/lease/settlement"
	"modelgateway/shared/wire"
)

// oracle has the expected results. The simulated processes do not see it.
type oracle struct {
	w     *world
	owner map[wire.SessionID]*proxy
	// server has the Postgres server on which each session was opened. A server's number changes when commits are lost.
	server map[wire.SessionID]int
	// events has the usage events that were made, by request.
	events  map[[16]byte]*outcome
	altered map[[16]byte]bool
	// revoked and suspended are the confirmed revocations and suspensions; released counts how often an account was
	// reactivated.
	revoked map[apikey.Hash]bool
	// bounds are the times by which revocations were said to be effective.
	bounds    map[apikey.Hash]time.Duration
	suspended map[string]bool
	released  map[string]int
	// epochs has the cluster epoch in which each session was registered.
	epochs map[wire.SessionID]int64
	// taken has the units by which pools were reduced, or which were lost with commits. everUnlimited has the pools that
	// were without a limit at some time.
	taken         map[wire.PoolID]int64
	everUnlimited map[wire.PoolID]bool
	// sizes has the totals of slots and limits, and used what finished requests have used of limits, at most what was
	// reserved for them.
	sizes         map[wire.PoolID][]*resize
	used          map[wire.PoolID]int64
	issued        map[wire.SessionID]bool
	pools         map[wire.PoolID]bool
	lost          bool // Postgres has lost commits
	lossDeclared  bool // sessions that it ended may report lost grants
	restoredSince bool // Postgres was restored since the last declared loss
	answered      answeredCommits
}

// resize is a change of an account's slots or of a limit to total. at is when it was confirmed,
// negative before that.
type resize struct {
	at    time.Duration
	total int64
}

// outcome is the expected settlement of one request's usage.
type outcome struct {
	cost    int64
	session wire.SessionID
	limit   wire.PoolID
	balance wire.PoolID
	// used is what counts in oracle.used.
	used int64
	// spoolLost and pgLost mean that the event was lost with a spool or with commits of Postgres, excused that no copy of
	// it is left, which is no fault of the protocol.
	spoolLost, pgLost, excused bool
}

func newOracle(w *world) *oracle {
	return &oracle{
		w:             w,
		owner:         map[wire.SessionID]*proxy{},
		server:        map[wire.SessionID]int{},
		events:        map[[16]byte]*outcome{},
		altered:       map[[16]byte]bool{},
		revoked:       map[apikey.Hash]bool{},
		bounds:        map[apikey.Hash]time.Duration{},
		suspended:     map[string]bool{},
		released:      map[string]int{},
		taken:         map[wire.PoolID]int64{},
		everUnlimited: map[wire.PoolID]bool{},
		sizes:         map[wire.PoolID][]*resize{},
		used:          map[wire.PoolID]int64{},
		issued:        map[wire.SessionID]bool{},
		pools:         map[wire.PoolID]bool{},
		answered:      answeredCommits{},
		epochs:        map[wire.SessionID]int64{},
	}
}

func (o *oracle) resized(pool wire.PoolID, total int64) *resize {
	r := &resize{-1, total}
	o.sizes[pool] = append(o.sizes[pool], r)
	return r
}

// spoolLost records the events of a lost spool.
func (o *oracle) spoolLost(d *disk) {
	for _, l := range d.sessions {
		for _, e := range l.events {
			o.events[e.id].spoolLost = true
		}
	}
}

// destroyed excuses the events of which no copy is left. The protocol survives the
// loss of one copy, but not of all. An event that was only in the stream must have
// been in a lost spool, or settled in commits that Postgres lost.
func (o *oracle) destroyed() {
	kept := map[[16]byte]bool{}
	for _, p := range o.w.proxies {
		for _, l := range p.disk.sessions {
			for _, e := range l.events {
				kept[e.id] = true
			}
		}
	}

	for _, m := range o.w.stream.messages {
		for _, e := range m.events {
			kept[e.id] = true
		}
	}

	for id, e := range o.events {
		if _, settled := o.w.pg.usage[id]; !settled && !kept[id] && (e.spoolLost || e.pgLost) && !e.excused {
			e.excused = true
			o.used[e.limit] -= e.used // the control plane never learns of it
			o.w.stats.count("events of which no copy is left")
		}
	}
}

// restored records the usage that Postgres has lost.
func (o *oracle) restored(before, after *database) {
	o.lost, o.restoredSince = true, true
	for id := range before.usage {
		if _, kept := after.usage[id]; !kept {
			if e := o.events[id]; e != nil {
				e.pgLost = true
			}
		}
	}

	for id := range before.quarantine { // quarantined events count as settled
		if e := o.events[id]; e != nil && after.quarantine[id] == 0 {
			e.pgLost = true
		}
	}

	for id, p := range before.pools {
		if kept := after.pools[id]; kept != nil {
			o.taken[id] += max(p.Total-kept.Total, 0)
		}
	}

	for account, suspended := range o.suspended {
		o.suspended[account] = suspended && after.suspended[account]
	}

	o.destroyed()
}

// checkPool checks I1, I3 and I7 for one pool.
func (w *world) checkPool(p *allocator.Pool) {
	held := int64(0)
	for s, l := range w.pg.leases[p.ID] {
		if l.Outstanding() < 0 {
			w.fail("I1: session %d holds %d of pool %d: %+v", s, l.Outstanding(), p.ID, *l)
		}
		held += l.Outstanding()
	}

	if p.Total != p.Free+held+p.Settled {
		w.fail("I1: pool %d: total %d, free %d, held %d, settled %d", p.ID, p.Total, p.Free, held, p.Settled)
	}
	if p.Settled != w.pg.spent[p.ID] {
		w.fail("I3: pool %d: settled %d, usage %d", p.ID, p.Settled, w.pg.spent[p.ID])
	}
	if !p.Unlimited && !w.oracle.everUnlimited[p.ID] && p.Free < -(p.Overrun+p.Late+w.oracle.taken[p.ID]) {
		w.fail("I7: pool %d: free %d below overrun %d, late %d and removed units %d", p.ID, p.Free, p.Overrun, p.Late, w.oracle.taken[p.ID])
	}
}

// checkNewSession checks I10 for a session id in a response. An id that was in no
// response may be lost with a commit, and then be assigned again.
func (w *world) checkNewSession(id wire.SessionID) {
	if w.oracle.issued[id] {
		w.fail("I10: session id %d is assigned twice", id)
	}
	w.oracle.issued[id] = true
}

// checkAdmission checks I2, I4 and I9 when a request is admitted.
func (w *world) checkAdmission(r *request) {
	o, p := w.oracle, r.p
	if o.revoked[r.key.hash] {
		w.fail("I4: %s admits key %s after its revocation was confirmed", p.name, r.key.name)
	}
	if until, told := o.bounds[r.key.hash]; told && w.now > until && !o.lost {
		w.fail("I4: %s admits key %s %s after the time by which its revocation was said to be effective", p.name, r.key.name, w.now-until)
	}
	if o.suspended[r.customer.name] {
		w.fail("I4: %s admits account %s after its suspension was confirmed", p.name, r.customer.name)
	}
	if p.usedCapacity() > w.profile.SpoolCapacity {
		w.fail("I9: %s has a spool capacity of %d and uses %d", p.name, w.profile.SpoolCapacity, p.usedCapacity())
	}

	w.checkFresh(r)
	if o.server[r.session] != w.pg.server {
		return // Postgres has lost commits since: its data of the session is older
	}
	if t := w.pg.sessions[r.session]; t == nil || t.state != session.Active {
		w.fail("I2: %s admits in session %d, which is not active", p.name, r.session)
	}

	needs := []wire.PoolID{r.record.BalancePool}
	if r.needsSlot {
		needs = append(needs, r.record.SlotsPool)
	}

	if r.session == p.session && p.isResumed {
		w.checkResumed(r)
		needs = nil
	}

	for _, pool := range needs {
		l, at := w.pg.leases[pool][r.session], r.queue.queue.LeaseView(pool)
		if l == nil || l.Granted < at.Granted || l.Returned > at.Returned {
			w.fail("I2: %s holds %+v of pool %d, its lease is %+v", p.name, at, pool, l)
		}
		if at.Granted < at.Returned+at.Running {
			w.fail("I2: %s has reserved %d of pool %d, more than it holds: %+v", p.name, at.Running, pool, at)
		}
	}

	w.checkSlots(r)
	w.checkLimit(r)
}

// checkLimit checks I2 for a limit: when a request is admitted, what the key's requests use and have used is at most the
// greatest limit of the last second.
func (w *world) checkLimit(r *request) {
	pool := r.record.LimitPool
	if pool == 0 || w.oracle.lost || w.oracle.everUnlimited[pool] || w.pg.pools[pool] == nil || w.pg.pools[pool].Late > 0 {
		return
	}
	used := r.amount + w.oracle.used[pool]
	for _, p := range w.proxies {
		for _, x := range p.running {
			if x != r && x.started && !x.lost && x.key.limit == pool {
				used += x.amount
			}
		}
	}
	if most := w.oracle.most(pool, w.now); used > most {
		w.fail("I2: %s admits %d of limit %d, which makes %d of %d", r.p.name, r.amount, pool, used, most)
	}
}

// most returns the greatest size that a pool has had since a second before a time.
func (o *oracle) most(pool wire.PoolID, since time.Duration) int64 {
	most := int64(0)
	for _, s := range slices.Backward(o.sizes[pool]) {
		most = max(most, s.total)
		if s.at >= 0 && s.at < since-time.Second {
			break // earlier totals no longer count
		}
	}
	return most
}

// checkSlots checks I2 for slots: the running requests of an account are at most
// the greatest number of slots that it has had since the oldest of them was
// admitted.
func (w *world) checkSlots(r *request) {
	if !r.needsSlot || w.oracle.lost {
		return
	}
	running, since := int64(0), w.now
	for _, p := range w.proxies {
		for _, x := range p.running {
			t := w.pg.sessions[x.session]
			if x.started && !x.lost && x.needsSlot && x.customer == r.customer && t != nil && t.state != session.Closed {
				running, since = running+1, min(since, x.admittedAt)
			}
		}
	}
	if most := w.oracle.most(r.customer.slots, since); running > most {
		w.fail("I2: %d requests of %s run on %d slots", running, r.customer.name, most)
	}
}

// checkClosing checks I2 when a session is closed: it must have no running request
// that is younger than the longest request.
func (w *world) checkClosing(id wire.SessionID) {
	p := w.oracle.owner[id]
	if p == nil || !p.alive {
		return
	}
	for _, r := range p.running {
		if r.session == id && r.started && !r.lost && w.now-r.admittedAt < maxRequest {
			w.fail("I2: session %d is closed while a request of it has run for %s", id, w.now-r.admittedAt)
		}
	}
}

var heldKind = map[wire.RefusalReason]wire.PoolKind{
	wire.NoSlot:           wire.Slots,
	wire.KeyLimitReserved: wire.KeyLimit,
	wire.BalanceReserved:  wire.Balance,
}

// checkDecisions checks I5 when a lease request is decided.
func (w *world) checkDecisions(batch *allocator.Batch, request *wire.LeaseRequest, reply *wire.LeaseResponse) {
	if batch.Recovering {
		w.fail("units are granted during the recovery wait")
	}
	for i, d := range reply.Decisions {
		if !d.Granted {
			w.checkRefusal(batch, request, reply, i)
		}
	}
}

// checkRefusal checks that some pool had less than the need, and that no session
// held idle units of it.
func (w *world) checkRefusal(batch *allocator.Batch, request *wire.LeaseRequest, reply *wire.LeaseResponse, i int) {
	d, short := reply.Decisions[i], false
	for _, n := range request.Needs[i] {
		p := batch.Allocator.Pools[n.Pool]
		if p == nil || p.Unlimited {
			continue
		}
		if kind, ok := heldKind[d.Reason]; ok && kind == n.Kind {
			w.checkIdle(batch, n.Pool, request, reply)
		}
		short = short || p.Free+grantedFrom(request, reply, n.Pool, i+1) < n.Amount
	}
	if !short {
		w.fail(
			"I5: request %d of lease request %d of session %d was refused (%s) although every pool had enough",
			i,
			request.Number,
			request.Session,
			d.Reason,
		)
	}
}

// grantedFrom returns the units of a pool that a lease request was granted for its
// requests from one on.
func grantedFrom(request *wire.LeaseRequest, reply *wire.LeaseResponse, pool wire.PoolID, from int) (sum int64) {
	for i := from; i < len(reply.Decisions); i++ {
		for _, n := range request.Needs[i] {
			if reply.Decisions[i].Granted && n.Pool == pool {
				sum += n.Amount
			}
		}
	}
	return sum
}

// checkReported checks that the lease has at least the totals that the session
// reports.
func (w *world) checkReported(batch *allocator.Batch, r *wire.Return, status wire.Status) {
	if status != wire.Done || r.Reports[0].Generation == madeUp {
		return
	}
	for _, v := range r.Reports {
		l := batch.Allocator.Leases[allocator.LeaseKey{Pool: v.Pool, Session: r.Session}]
		if batch.Allocator.Pools[v.Pool] != nil && (v.GrantedSeen > 0 || v.Returned > 0) &&
			(l == nil || l.Granted < v.GrantedSeen || l.Returned < v.Returned) {
			w.fail("I2: session %d reports %+v of pool %d, its lease is %+v", r.Session, v, v.Pool, l)
		}
	}
}

// freeUnits returns the free units of the limited pools of a batch, and those that
// overruns have taken.
func freeUnits(batch *allocator.Batch) map[wire.PoolID]int64 {
	free := map[wire.PoolID]int64{}
	for id, p := range batch.Allocator.Pools {
		if !p.Unlimited {
			free[id] = p.Free + p.Overrun
		}
	}
	return free
}

// checkNothingTaken checks that a report takes no units from a pool, unless
// commits were lost or a loss was declared: sessions may then report lost grants.
func (w *world) checkNothingTaken(batch *allocator.Batch, ret *wire.Return, before map[wire.PoolID]int64) {
	if w.oracle.lost || w.oracle.lossDeclared {
		return
	}
	for id, free := range freeUnits(batch) {
		if free < before[id] {
			w.fail(
				"I10: a return of session %d takes %d units of pool %d, which it was never granted: %+v",
				ret.Session,
				before[id]-free,
				id,
				ret.Reports,
			)
		}
	}
}

// checkBounds checks that no transaction decides a message with more reports than
// a session sends.
func (w *world) checkBounds(s wire.SessionID, reports int) {
	if reports > wire.MaxReports {
		w.fail("a transaction decides a message of session %d with %d reports", s, reports)
	}
}

// checkFenced checks the response to a lease request that its session has ended: an
// active session must not end because of what another process has sent.
func (w *world) checkFenced(request *wire.LeaseRequest, response *wire.LeaseResponse) {
	stored := w.pg.sessions[request.Session]
	if response.Status != wire.Fenced || w.oracle.lost || w.oracle.lossDeclared || stored == nil {
		return
	}
	if stored.state == session.Active && stored.boot == request.BootID {
		w.fail("I10: lease request %d of session %d is told that its session has ended, and it has not", request.Number, request.Session)
	}
}

// checkAborted checks the waiters of a queue after an attempt to get a decision has
// failed: they have stopped waiting if all attempts of the proxy have failed for a
// decision timeout, and wait otherwise.
func (w *world) checkAborted(q *accountQueue, since time.Duration) {
	pointless := q.p.clock().Mono-since >= q.p.timing.DecisionTimeout
	for waiter := range q.waiting {
		switch {
		case pointless && !waiter.Aborted() && !waiter.Granted() && !waiter.Refused():
			w.fail("%s: a request waits although no control plane has decided anything since %s", q.p.name, since)
		case !pointless && waiter.Aborted():
			w.fail("%s: a request is aborted although attempts have failed only since %s", q.p.name, since)
		}
	}
}

// checkFencedGrants checks that a session that still holds leases learns of every
// grant. It would not return units of which it knows nothing.
func (w *world) checkFencedGrants(batch *allocator.Batch, request *wire.LeaseRequest, response *wire.LeaseResponse) {
	last := batch.Results[allocator.RequestKey{Session: request.Session, Account: request.Account}]
	r := batch.Sessions[request.Session]
	if response.Status != wire.Fenced || r == nil || r.BootID != request.BootID || !r.HoldsLeases() || last == nil ||
		last.Number != request.Number {
		return
	}
	for _, d := range last.Response.Decisions {
		if d.Granted {
			w.fail(
				"I8: session %d is not told of the units that lease request %d was granted before the session was fenced",
				request.Session,
				request.Number,
			)
		}
	}
}

// checkOutage checks that requests which idle units cover are served while no
// control plane can be reached, although a request waits that they do not cover.
func (w *world) checkOutage() {
	const need, requests = 5, 20
	w.runUntil(w.now + time.Second)
	var served []*request
	asked := 0
	w.busDown = true
	for _, p := range w.proxies {
		for _, c := range w.customers {
			k := w.unlimitedKey(p, c)
			q := p.queues[c.name]
			needs := []wire.Need{{Pool: c.balance, Amount: need * requests}}
			if k == nil || q == nil || !q.covers(needs) || !p.valid(p.clock().Add(time.Second)) ||
				p.usedCapacity()+requests+1 >= w.profile.SpoolCapacity*9/10 {
				continue
			}

			w.stats.count("accounts whose idle units are used in an outage")
			at := q.queue.LeaseView(c.balance)
			p.accept(&request{
				id:       w.newRequestID(),
				customer: c,
				key:      k,
				amount:   at.Granted - at.Returned - at.Charged - at.Running + 1,
				duration: time.Millisecond,
			})

			for range requests {
				r := &request{
					id:       w.newRequestID(),
					customer: c,
					key:      k,
					amount:   need,
					cost:     1,
					duration: 5 * time.Millisecond,
				}
				r.admitted = func() { served = append(served, r) }
				asked++
				p.accept(r)
			}
		}
	}

	w.runUntil(w.now + 500*time.Millisecond)
	if len(served) < asked {
		w.fail(
			"liveness: %d of %d covered requests are served while no control plane can be reached and a larger request waits",
			len(served),
			asked,
		)
	}

	w.busDown = false
	w.runUntil(w.now + 3*time.Second)
}

// checkIdleInOutage checks that an account keeps the idle units that it has when
// the control plane becomes unreachable, although its idle timeout passes then.
func (w *world) checkIdleInOutage() {
	const need, before, outage = 5, time.Second, 1200 * time.Millisecond
	type idleAccount struct {
		p *proxy
		c *customer
		k *key
	}

	var idle []idleAccount
	w.runUntil(w.now + time.Second)

	for _, p := range w.proxies {
		for _, c := range w.customers {
			if k := w.unlimitedKey(p, c); k != nil {
				p.accept(&request{
					id:       w.newRequestID(),
					customer: c,
					key:      k,
					amount:   need,
					cost:     1,
					duration: 5 * time.Millisecond,
				})
				idle = append(idle, idleAccount{p, c, k})
			}
		}
	}

	w.runUntil(w.now + w.profile.IdleTimeout - before)
	w.busDown = true
	idle = slices.DeleteFunc(idle, func(a idleAccount) bool {
		q, servedUntil := a.p.queues[a.c.name], a.p.clock().Add(outage+300*time.Millisecond)
		return q == nil || !q.covers([]wire.Need{{Pool: a.c.balance, Amount: need}}) ||
			!a.p.valid(servedUntil) || a.p.usedCapacity()+2 >= w.profile.SpoolCapacity*9/10
	})

	w.runUntil(w.now + outage)
	served := 0
	for _, a := range idle {
		w.stats.count("accounts that become idle in an outage")
		r := &request{
			id:       w.newRequestID(),
			customer: a.c,
			key:      a.k,
			amount:   need,
			cost:     1,
			duration: 5 * time.Millisecond,
		}
		r.admitted = func() { served++ }
		a.p.accept(r)
	}

	w.runUntil(w.now + 100*time.Millisecond)
	if served < len(idle) {
		w.fail(
			"liveness: %d of %d accounts that had idle units are served after their idle timeout while no control plane can be reached",
			served,
			len(idle),
		)
	}

	w.busDown = false
	w.runUntil(w.now + 3*time.Second)
}

// unlimitedKey returns a key of an account without a spend limit, whose record the
// proxy has; nil if there is none.
func (w *world) unlimitedKey(p *proxy, c *customer) *key {
	for _, k := range c.keys {
		if found := p.cache[k.hash]; found != nil && found.record.Active && found.record.LimitPool == 0 &&
			w.rules.IsCurrent(&p.invalidations, found.version) {
			return k
		}
	}
	return nil
}

// checkForgotten checks that no proxy has a queue of an account that had no
// request for some seconds.
func (w *world) checkForgotten() {
	for _, p := range w.proxies {
		for _, account := range sortedKeys(p.queues) {
			q := p.queues[account]
			if !slices.ContainsFunc(q.pools(), func(pool wire.PoolID) bool { return w.oracle.everUnlimited[pool] }) {
				w.fail("liveness: %s keeps the queue of %s, which has had no request for some seconds", p.name, account)
			}
		}
	}
}

// checkNewPool checks I10 for pool ids.
func (w *world) checkNewPool(id wire.PoolID) {
	if w.oracle.pools[id] {
		w.fail("I10: pool id %d is assigned twice", id)
	}
	w.oracle.pools[id] = true
}

// checkOutcome checks that an altered event of a settled request conflicts with
// the settled one.
func (w *world) checkOutcome(e *usage, v settlement.Outcome) {
	settled, ok := w.pg.usage[e.id]
	if ok && v != settlement.Invalid && settled.fingerprint != e.fingerprint && v != settlement.Conflicting {
		w.fail("I3: an altered event of a settled request counts as %d", v)
	}
}

// checkLate checks that no usage is settled after its session was closed at the
// request of its proxy.
func (w *world) checkLate(d *database, s *settlement.Batch, records map[wire.SessionID]*session.Record) {
	for i, v := range s.Outcomes {
		r := d.sessions[s.Charges[i].Session]
		if v == settlement.Inserted && r != nil && r.closedByProxy && records[s.Charges[i].Session].State == session.Closed &&
			!w.oracle.lost {
			w.fail("I6: session %d was closed before its usage was settled", s.Charges[i].Session)
		}
	}
}

func (w *world) settledNow(id [16]byte) bool {
	_, ok := w.pg.usage[id]
	return ok
}

// checkEnd checks I3, I6 and I8 after all faults have ended and all sessions have
// had time to close.
func (w *world) checkEnd() {
	o := w.oracle
	o.destroyed() // a watermark from before a loss may have come after it

	for _, id := range sortedIDs(o.events) {
		e := o.events[id]
		settled, ok := w.pg.usage[id]
		switch {
		case !ok && w.pg.pools[e.limit] == nil && w.pg.quarantine[id] > 0: // Postgres has lost the key
		case !ok && !e.excused:
			w.fail("I6: request %x of session %d was never settled", id[8:], e.session)
		case ok && settled.cost != e.cost && (!o.altered[id] || !o.lost): // after a loss, the altered one may come first
			w.fail("I3: request %x cost %d and was settled with %d", id[8:], e.cost, settled.cost)
		case w.oracle.altered[id] && w.pg.quarantine[id] == 0 && !o.lost &&
			w.stats.Faults["streams deleted"] == 0 && w.stats.Faults["stream tails lost"] == 0:
			w.fail("I3: an altered event of request %x is not in quarantine", id[8:])
		}
	}

	for id := range w.pg.usage {
		if o.events[id] == nil {
			w.fail("I3: request %x has a usage record but made no usage event", id[8:])
		}
	}

	for _, id := range sortedKeys(w.pg.sessions) {
		if r := w.pg.sessions[id]; r.state != session.Closed {
			w.fail("I8: session %d is still in state %d at the end", id, r.state)
		}
	}

	for _, id := range sortedKeys(w.pg.pools) {
		w.checkPool(w.pg.pools[id])
		if held := w.pg.pools[id].Outstanding(); held != 0 {
			w.fail("I8: %d units of pool %d are outstanding at the end", held, id)
		}
	}

	for _, p := range w.proxies {
		if n := p.usage.Pending(); n != 0 {
			w.fail("I6: %s still has %d unsettled events", p.name, n)
		}
	}
}
