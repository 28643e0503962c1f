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
	sizes  map[wire.PoolID][]*resize
	used   map[wire.PoolID]int64
	issued map[wire.SessionID]bool
	// heardRunning is when a transaction took that requests run in an ended session.
	heardRunning map[wire.SessionID]time.Duration
	// moves has the projects of keys one after another, moved the index of the last one that was confirmed.
	moves map[apikey.Hash][]string
	moved map[apikey.Hash]int
	// paused has the confirmed pauses of keys, unpaused how often a key was resumed.
	paused   map[apikey.Hash]bool
	unpaused map[apikey.Hash]int
	ends     ends
	pools    map[wire.PoolID]bool
	// idleUntil is until when a proxy may use idle units, in milliseconds by its wall clock, as it was told last; zero means for ever.
	idleUntil     map[poolOfSession]int64
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
	windows []wire.PoolID
	// windowsAt is when the proxy chose windows.
	windowsAt time.Duration
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
		moves:         map[apikey.Hash][]string{},
		moved:         map[apikey.Hash]int{},
		paused:        map[apikey.Hash]bool{},
		unpaused:      map[apikey.Hash]int{},
		ends:          newEnds(),
		bounds:        map[apikey.Hash]time.Duration{},
		suspended:     map[string]bool{},
		released:      map[string]int{},
		taken:         map[wire.PoolID]int64{},
		everUnlimited: map[wire.PoolID]bool{},
		sizes:         map[wire.PoolID][]*resize{},
		used:          map[wire.PoolID]int64{},
		issued:        map[wire.SessionID]bool{},
		idleUntil:     map[poolOfSession]int64{},
		heardRunning:  map[wire.SessionID]time.Duration{},
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
			for _, pool := range e.windows {
				o.used[pool] -= e.used
			}
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
	for hash, paused := range o.paused {
		o.paused[hash] = paused && after.paused[hash]
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

// checkClosing checks I2 when a session is closed: it must have no running request, unless
// its proxy was not heard for long.
func (w *world) checkClosing(id wire.SessionID) {
	p := w.oracle.owner[id]
	if p == nil || !p.alive {
		return
	}
	for _, r := range p.running {
		heard := w.oracle.heardRunning[id]
		recently := heard > 0 && w.now-heard < time.Duration(clockTolerance*float64(closeAfter))-outageSample
		if r.session == id && r.started && !r.lost && (recently || w.now-r.admittedAt < maxRequest) {
			w.fail("I2: session %d is closed while a request of it has run for %s", id, w.now-r.admittedAt)
		}
	}
}

var heldKind = map[wire.RefusalReason]wire.PoolKind{
	wire.NoSlot:          wire.Slots,
	wire.LimitReserved:   wire.Limit,
	wire.BalanceReserved: wire.Balance,
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
		case !ok && w.pg.lacks(e) && w.pg.quarantine[id] > 0: // Postgres has lost the key or a limit
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

	w.checkWindowCharges()
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

// lacks reports whether a pool is missing that an event charges.
func (d *database) lacks(e *outcome) bool {
	return d.pools[e.limit] == nil || slices.ContainsFunc(e.windows, func(id wire.PoolID) bool { return d.pools[id] == nil })
}
