package sim

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/lease/rollback"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

// The times of a control plane.
const (
	linger     = 50 * time.Millisecond
	recallWait = 250 * time.Millisecond
	recallLook = 10 * time.Millisecond
	sweepEvery = 500 * time.Millisecond
	beatEvery  = 100 * time.Millisecond
	silence    = 1500 * time.Millisecond
	maxBatch   = 32
)

// replica is one control plane: stateless but for what it remembers for speed
// and the commits that it has answered.
type replica struct {
	actor
	queue, lingering []*work
	busy             bool
	calm             allocator.EscrowPolicy
	attendant        *rollback.Detector
	looking          bool
}

// work is an op or a return with the place where its answer goes.
type work struct {
	op      *wire.LeaseRequest
	ret     *wire.Return
	opDone  func(wire.LeaseResponse)
	retDone func(wire.ReturnResponse)
	until   time.Duration
	// look is when it is looked at again at the latest, pause the time until then.
	look, pause time.Duration
	recalling   bool
	stay        allocator.PendingRequest
	seq         uint64
}

func (w *world) newReplica(name string) *replica {
	c := &replica{actor: actor{w: w, name: name, rate: 1 + 0.04*(w.r.Float64()-0.5), offset: w.between(0, time.Hour)}}
	w.replicas = append(w.replicas, c)
	c.start()
	return c
}

func (c *replica) start() {
	c.alive = true
	c.life++
	c.queue, c.lingering, c.busy = nil, nil, false
	c.calm = allocator.EscrowPolicy{HeadroomPeriod: c.w.profile.Calm}
	c.attendant, c.looking = rollback.NewDetector(fmt.Sprintf("%s/%d", c.name, c.life), silence), false
	c.every(sweepEvery, c.sweep)
	c.every(beatEvery, c.look)
	c.every(c.w.profile.SettleEvery, c.settle)
}

func (c *replica) every(d time.Duration, do func()) {
	var again func()
	again = func() {
		do()
		c.after(d, again)
	}
	c.after(c.w.between(0, d), again)
}

func (c *replica) kill() {
	c.alive = false
	c.w.stats.count("control planes killed")
	c.w.log("%s killed", c.name)
	life := c.life
	c.w.after(c.w.between(50*time.Millisecond, time.Second), func() {
		if c.life == life {
			c.start()
		}
	})
}

// tx runs a transaction. It can fail, commit without the answer arriving, and
// be the last thing that the replica does.
func (c *replica) tx(name string, do func(d *database), done func(ok bool)) {
	commit, ok := c.attendant.Begin()
	if !ok {
		c.after(0, func() { done(false) })
		return
	}
	c.commit(name, commit, do, func(ok bool) { done(ok) })
}

// commit runs a transaction on a connection to the server as it is now.
func (c *replica) commit(name string, commit rollback.Transaction, do func(d *database), done func(ok bool)) {
	w, life := c.w, c.attendant.Incarnation()
	failed := func() {
		c.attendant.Failed(commit)
		done(false)
	}
	c.after(w.between(300*time.Microsecond, w.profile.TxTime), func() {
		switch {
		case w.pgDown || w.pg.life != life:
			failed()
			return
		case w.chance(w.profile.TxFail):
			w.stats.count("transactions failed")
			failed()
			return
		case !w.pg.replicas[c.attendant.ID()]:
			w.stats.count("control planes fenced")
			c.attendant.StopServing()
			failed()
			return
		}
		w.checkNoticed()
		do(w.pg)
		w.pg.witnesses[commit.CommitMarker] = true
		w.pg.commits++
		server, number, epoch := w.pg.server, w.pg.commits, w.pg.mark.Epoch
		switch {
		case w.chance(w.profile.CrashAfterCommit):
			w.stats.count("crashes after commit")
			w.log("%s dies after the commit of %s", c.name, name)
			c.kill()
		case w.chance(w.profile.TxUnknown):
			w.stats.count("commits without an answer")
			failed()
		default:
			c.after(w.between(0, w.profile.AnswerTime), func() {
				if !c.attendant.Committed(commit) {
					w.stats.count("commits overtaken by another life of Postgres")
					done(false)
					return
				}
				w.oracle.committed(server, number, epoch)
				done(true)
			})
		}
	})
}

func (c *replica) enqueue(x *work) {
	c.w.seq++
	x.seq = c.w.seq
	c.queue = append(c.queue, x)
	c.next()
}

// next runs a batch unless one runs.
func (c *replica) next() {
	if c.busy || len(c.queue) == 0 {
		return
	}
	c.busy = true
	n := min(len(c.queue), maxBatch)
	batch := c.queue[:n:n]
	c.queue = c.queue[n:]
	batch = c.wake(batch)
	var replies []func()
	c.tx("batch", func(d *database) { replies = c.decide(d, batch) }, func(ok bool) {
		c.busy = false
		if !ok {
			replies = nil
			for _, x := range batch {
				replies = append(replies, x.unavailable)
			}
		}
		for _, reply := range replies {
			reply()
		}
		c.next()
	})
}

func (x *work) unavailable() {
	if x.op != nil {
		x.opDone(wire.LeaseResponse{V: wire.Version, Number: x.op.Number, Status: wire.Unavailable})
	} else {
		x.retDone(wire.ReturnResponse{V: wire.Version, Status: wire.Unavailable})
	}
}

// wake adds the ops that linger and whose account gives something back, or
// whose time is up: before the others, in the order in which they came.
func (c *replica) wake(batch []*work) []*work {
	returning := map[string]bool{}
	for _, x := range batch {
		if x.ret != nil {
			returning[x.ret.Account] = true
		} else {
			returning[x.op.Account] = true
		}
	}
	slices.SortStableFunc(c.lingering, func(a, b *work) int { return cmp.Compare(a.seq, b.seq) })
	var ready, rest []*work
	for _, x := range c.lingering {
		if returning[x.op.Account] || c.clock().Mono >= x.look {
			ready = append(ready, x)
		} else {
			rest = append(rest, x)
		}
	}
	c.lingering = rest
	return append(ready, batch...)
}

// decide is the transaction of a batch. It returns what is to be answered after
// its commit.
func (c *replica) decide(d *database, batch []*work) []func() {
	w := c.w
	docket := c.docket(d, batch)
	var after []func()
	for _, x := range batch {
		if x.ret != nil {
			status := w.rules.Return(docket, x.ret)
			w.checkRestated(docket, x.ret, status)
			after = append(after, func() { x.retDone(wire.ReturnResponse{V: wire.Version, Status: status}) })
		}
	}
	for _, x := range batch {
		if x.op != nil {
			after = append(after, c.decideOp(docket, x))
		}
	}
	w.saveBook(docket.Allocator)
	for key, result := range docket.Results {
		if result.New {
			stored := *result
			stored.New = false
			d.results[key] = &stored
		}
	}
	recalls := docket.Allocator.ToRecall()
	for _, session := range sortedKeys(recalls) {
		for _, r := range recalls[session] {
			after = append(after, func() { c.recall(session, r) })
		}
	}
	return after
}

// docket loads what a batch works on.
func (c *replica) docket(d *database, batch []*work) *allocator.Batch {
	w := c.w
	pools, sessions := map[wire.PoolID]bool{}, map[wire.SessionID]bool{}
	note := func(s wire.SessionID, views []wire.LeaseReport) {
		sessions[s] = true
		for _, v := range views {
			pools[v.Pool] = true
		}
	}
	results, wanted := map[allocator.RequestKey]*allocator.Result{}, map[wire.PoolID]int64{}
	for _, x := range batch {
		if x.ret != nil {
			note(x.ret.Session, x.ret.Reports)
			continue
		}
		note(x.op.Session, x.op.Reports)
		for _, needs := range x.op.Needs {
			for _, n := range needs {
				pools[n.Pool] = true
				wanted[n.Pool] += n.Amount
			}
		}
		key := allocator.RequestKey{Session: x.op.Session, Account: x.op.Account}
		if last := d.results[key]; last != nil {
			stored := *last
			results[key] = &stored
		}
	}
	book := d.book(pools, sessions)
	tenures := d.tenures(sessions, w.now)
	for id := range sessions {
		t := tenures[id]
		book.EndedSessions[id] = t == nil || !t.MayAdmit()
	}
	d.holders(book, wanted)
	live := int64(0)
	for _, t := range d.active(w.now) {
		if t.CanRequest() {
			live++
		}
	}
	return &allocator.Batch{
		Allocator: book, Sessions: tenures, Results: results, LiveSessions: live,
		Recovering: w.rules.Recovers(w.now-d.lostAt, sessionValid, margin),
	}
}

func (c *replica) decideOp(docket *allocator.Batch, x *work) func() {
	w := c.w
	now := c.clock().Mono
	before := docket.Results[allocator.RequestKey{Session: x.op.Session, Account: x.op.Account}]
	x.stay.MayWait, x.stay.ResendRecall = x.until == 0 || now < x.until, x.look > 0 && now >= x.look
	reply, recalling := w.rules.Op(docket, x.op, &x.stay, func() {
		if w.profile.Calm >= 0 {
			w.rules.Relax(&c.calm, docket.Allocator, docket.LiveSessions, x.op, now)
		}
	})
	if reply == nil {
		x.wait(recalling, now)
		c.lingering = append(c.lingering, x)
		c.after(max(x.look-now, 0), func() {
			c.queue = append(c.take(x), c.queue...)
			c.next()
		})
		return func() {}
	}
	if reply.Status == wire.Wait {
		w.stats.count("ops that wait for a recall")
	}
	if reply.Status == wire.Done && (before == nil || x.op.Number > before.Number) {
		w.checkDecisions(docket, x.op, reply)
	}
	answer := *reply
	w.log("%s: op %d of session %d, %s: %s %+v", c.name, x.op.Number, x.op.Session, x.op.Account, answer.Status, answer.Decisions)
	return func() { x.opDone(answer) }
}

// wait has an op linger, for a recall or for returns.
func (x *work) wait(recalling bool, now time.Duration) {
	switch {
	case x.until == 0 || x.recalling != recalling:
		x.recalling, x.until, x.pause = recalling, now+linger, linger
		if recalling {
			x.until, x.pause = now+recallWait, recallLook
		}
	case now >= x.look:
		x.pause *= 2
	}
	x.look = min(now+x.pause, x.until)
}

// take removes a work from those that linger, if it still does.
func (c *replica) take(x *work) []*work {
	for i, y := range c.lingering {
		if x == y {
			c.lingering = append(c.lingering[:i:i], c.lingering[i+1:]...)
			return []*work{x}
		}
	}
	return nil
}

func (c *replica) recall(session wire.SessionID, r wire.Recall) {
	p := c.w.oracle.owner[session]
	if p == nil {
		return
	}
	c.w.stats.count("recalls")
	c.w.push(c, p, "recall", func() { p.recalled(session, r) })
}

// sweep fences what has expired and closes what has been silent for long.
func (c *replica) sweep() {
	w := c.w
	c.tx("sweep", func(d *database) {
		for _, id := range sortedKeys(d.sessions) {
			t := d.tenure(id, w.now)
			switch {
			case w.rules.Fence(t, margin):
				w.stats.count("sessions fenced")
				w.log("session %d fenced", id)
				d.save(t, w.now)
			case w.rules.Outlived(t, rest):
				w.stats.count("sessions closed without a word")
				t.State = session.Closed
				d.save(t, w.now)
				w.free(id)
			}
		}
	}, func(bool) {})
}

// free gives back what the leases of a closed session hold.
func (w *world) free(id wire.SessionID) {
	w.checkClosing(id)
	pools := map[wire.PoolID]bool{}
	for pool, leases := range w.pg.leases {
		if leases[id] != nil {
			pools[pool] = true
		}
	}
	b := w.pg.book(pools, map[wire.SessionID]bool{id: true})
	w.rules.Free(b, id)
	w.saveBook(b)
	for key := range w.pg.results {
		if key.Session == id {
			delete(w.pg.results, key)
		}
	}
}

func (c *replica) register(r *wire.RegisterRequest, reply func(wire.RegisterResponse)) {
	w := c.w
	var answer wire.RegisterResponse
	c.tx("register", func(d *database) {
		d.mark.Session++
		id := wire.SessionID(d.mark.Session)
		d.sessions[id] = &row{boot: r.BootID, state: session.Active, until: w.now + sessionValid, applied: d.mark.Revision}
		for _, e := range w.rules.Earlier(r) {
			if e.Session < id && d.sessions[e.Session] == nil {
				d.sessions[e.Session] = &row{boot: e.BootID, state: session.Fenced, until: w.now, lost: true}
			}
		}
		answer = wire.RegisterResponse{
			V: wire.Version, Status: wire.Done, Session: id, ValidMS: sessionValid.Milliseconds(), Revision: d.mark.Revision,
			StreamIncarnation: incarnation(d.incarnation), ClusterEpoch: d.mark.Epoch,
		}
	}, func(ok bool) {
		if ok {
			w.checkNewSession(answer.Session)
			reply(answer)
		}
	})
}

func incarnation(n int64) string { return string(rune('a' + n)) }

// maxChanges bounds the changes in one renewal.
const maxChanges = 4

func (c *replica) renew(r *wire.HeartbeatRequest, reply func(wire.HeartbeatResponse)) {
	w := c.w
	var answer wire.HeartbeatResponse
	c.tx("renew", func(d *database) {
		t := d.tenure(r.Session, w.now)
		if !w.rules.Renew(t, r, sessionValid) {
			answer = wire.HeartbeatResponse{V: wire.Version, Status: wire.Fenced}
			return
		}
		d.save(t, w.now)
		answer = wire.HeartbeatResponse{
			V: wire.Version, Status: wire.Done, ValidMS: sessionValid.Milliseconds(),
			StreamIncarnation: incarnation(d.incarnation), ClusterEpoch: d.mark.Epoch,
		}
		for _, change := range d.changes {
			if change.Revision > r.AppliedRevision && len(answer.Changes) < maxChanges {
				answer.Changes = append(answer.Changes, change)
			}
		}
		answer.More = len(answer.Changes) == maxChanges
	}, func(ok bool) {
		if ok {
			reply(answer)
		}
	})
}

func (c *replica) close(r *wire.CloseRequest, reply func(wire.CloseResponse)) {
	w := c.w
	status := wire.Wait
	c.tx("close", func(d *database) {
		t := d.tenure(r.Session, w.now)
		before, settled := t.State, int64(0)
		if stored := d.sessions[r.Session]; stored != nil {
			settled = stored.settled.Count()
		}
		if w.rules.Close(t, r, settled) {
			status = wire.Done
		}
		if d.sessions[r.Session] == nil {
			return
		}
		d.save(t, w.now)
		if before != session.Closed && t.State == session.Closed {
			w.stats.count("sessions closed")
			d.sessions[r.Session].asked = true
			w.free(r.Session)
		}
	}, func(ok bool) {
		if ok {
			reply(wire.CloseResponse{V: wire.Version, Status: status})
		}
	})
}

func (c *replica) load(cust *customer, k *key, reply func(wire.LoadKeyResponse)) {
	var answer wire.LoadKeyResponse
	c.tx("load", func(d *database) {
		limit := k.limit
		if d.pools[limit] == nil { // Postgres has lost the key
			answer = wire.LoadKeyResponse{V: wire.Version, Status: wire.Done, ReadRevision: d.mark.Revision}
			return
		}
		if d.pools[limit].Unlimited {
			limit = 0
		}
		answer = wire.LoadKeyResponse{V: wire.Version, Status: wire.Done, ReadRevision: d.mark.Revision, Record: &wire.KeyRecord{
			KeyID: k.name, AccountID: cust.name, Active: d.revoked[k.hash] == 0 && !d.suspended[cust.name],
			BalancePool: cust.balance, SlotsPool: cust.slots, LimitPool: limit,
		}}
	}, func(ok bool) {
		if ok {
			reply(answer)
		}
	})
}
