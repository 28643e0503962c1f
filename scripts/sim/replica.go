package sim

import (
	"fmt"
	"maps"
	"time"

	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/lease/rollback"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

// The intervals of a replica. A replica without a checkpoint for the time silence
// counts as silent.
const (
	sweepEvery         = 500 * time.Millisecond
	confirmEvery       = 120 * time.Millisecond
	checkpointInterval = 100 * time.Millisecond
	silence            = 1500 * time.Millisecond
	restartLimit       = 300 * time.Millisecond
)

// replica is one control plane replica. Its only state is the batcher, and in the
// detector the commits that it has answered.
type replica struct {
	actor
	batcher *allocator.Batcher
	// running is the batch whose transaction runs, or nil.
	running *allocator.Transaction
	// wake is the time of the batcher's timer, which calls pump; allocator.Never if it is not set.
	wake     time.Duration
	detector *rollback.Detector
	checking bool
	// serving tracks the transactions of the sweeps, hearing those while the replica can receive messages.
	serving, hearing session.Presence
	// suspects are the pools whose rows the last batch found locked.
	suspects map[wire.PoolID]bool
	// confirmations are those of the stream of changes, streamed the streamed revision that was read, confirmedEpoch the last
	// epoch that it has confirmed.
	confirmations     map[confirming]*session.Confirmation
	streamed          int64
	confirmedEpoch    int64
	confirmingChanges bool
}

func (w *world) newReplica(name string) *replica {
	c := &replica{actor: actor{
		w:      w,
		name:   name,
		rate:   1 + 0.04*(w.r.Float64()-0.5),
		offset: w.between(0, time.Hour),
	}}
	w.replicas = append(w.replicas, c)
	c.start()
	return c
}

func (c *replica) start() {
	c.alive, c.running = true, nil
	c.process++

	c.wake, c.batcher = allocator.Never, allocator.NewBatcher(allocator.BatcherConfig{
		MaxBatch: 32,
		MaxQueue: 200,
		Escrow:   c.w.profile.HeadroomPeriod >= 0,
		Policy:   allocator.EscrowPolicy{HeadroomPeriod: c.w.profile.HeadroomPeriod},
	})
	c.suspects = map[wire.PoolID]bool{}
	c.confirmations, c.streamed, c.confirmedEpoch, c.confirmingChanges = nil, 0, 0, false
	c.serving, c.hearing = session.NewPresence(c.clock()), session.NewPresence(c.clock())
	c.detector, c.checking = rollback.NewDetector(fmt.Sprintf("%s/%d", c.name, c.process), rollback.Config{
		SilenceLimit: silence, RestartLimit: restartLimit, Keeps: c.w.profile.Keeps,
	}), false
	c.every(sweepEvery, c.sweep)
	c.every(checkpointInterval, c.check)
	c.every(c.w.profile.SettleEvery, c.settle)

	c.every(confirmEvery, c.confirmChanges)
	c.every(bucketEvery, c.writeBucket)
}

func (c *replica) every(d time.Duration, do func()) {
	var again func()
	again = func() {
		do()
		c.after(d, again)
	}
	c.after(c.w.between(0, d), again)
}

// kill kills the process, and starts another one later.
func (c *replica) kill() {
	c.alive = false
	c.releaseRows()
	c.w.stats.count("control planes killed")
	c.w.log("%s killed", c.name)
	process := c.process
	c.w.after(c.w.between(50*time.Millisecond, time.Second), func() {
		if c.process == process {
			c.start()
		}
	})
}

// tx runs a transaction. It may fail, it may commit without an answer, and the
// replica may be killed right after the commit.
func (c *replica) tx(name string, do func(d *database), done func(ok bool)) {
	commit, ok := c.detector.Begin()
	if !ok {
		c.after(0, func() { done(false) })
		return
	}
	c.commit(name, commit, func(d *database) bool {
		do(d)
		return true
	}, done)
}

// commit runs a transaction on a connection to the current server incarnation. do
// returns false if the server has ended the transaction.
func (c *replica) commit(name string, commit rollback.Transaction, do func(d *database) bool, done func(ok bool)) {
	w, incarnation := c.w, c.detector.Incarnation()
	failed := func() {
		c.detector.Failed(commit)
		done(false)
	}

	c.after(w.between(300*time.Microsecond, w.profile.TxTime), func() {
		switch {
		case w.pgDown || w.pg.serverIncarnation != incarnation:
			failed()
			return
		case w.chance(w.profile.TxFail):
			w.stats.count("transactions failed")
			failed()
			return
		case !w.pg.replicas[c.detector.ID()]:
			w.stats.count("control planes fenced")
			c.detector.StopServing()
			failed()
			return
		}

		w.checkLossDeclared()
		if !do(w.pg) {
			failed()
			return
		}

		w.pg.markers[commit.CommitMarker] = true
		w.pg.commits++
		server, number, epoch := w.pg.server, w.pg.commits, w.pg.mark.Epoch
		switch {
		case w.chance(w.profile.CrashAfterCommit):
			w.stats.count("crashes after commit")
			w.log("%s is killed after the commit of %s", c.name, name)
			c.kill()
		case w.chance(w.profile.TxUnknown):
			w.stats.count("commits without an answer")
			failed()
		default:
			c.after(w.between(0, w.profile.AnswerTime), func() {
				if !c.detector.Committed(commit) {
					w.stats.count("commits of an earlier server incarnation")
					done(false)
					return
				}
				w.oracle.committed(server, number, epoch)
				done(true)
			})
		}
	})
}

// request queues a lease request of a proxy.
func (c *replica) request(request *wire.LeaseRequest, respond func(wire.LeaseResponse)) {
	if c.w.rules.Exceeds(request.Reports, request.Needs) {
		respond(allocator.TooLarge(request))
		return
	}
	if !c.w.rules.AddRequest(c.batcher, request, respond) {
		c.w.stats.count("messages refused by a full queue")
		respond(allocator.Unavailable(request))
		return
	}
	c.pump()
}

// takeReturn queues a return of a proxy.
func (c *replica) takeReturn(ret *wire.Return, respond func(wire.ReturnResponse)) {
	if c.w.rules.Exceeds(ret.Reports, nil) {
		respond(wire.ReturnResponse{V: wire.Version, Status: wire.TooLarge})
		return
	}
	if !c.batcher.AddReturn(ret, respond) {
		c.w.stats.count("messages refused by a full queue")
		respond(wire.ReturnResponse{V: wire.Version, Status: wire.Unavailable})
		return
	}
	c.pump()
}

// pump runs the next transaction of the batcher, if there is one.
func (c *replica) pump() {
	now := c.clock().Mono
	tx, wake := c.batcher.Next(now)
	if wake < c.wake {
		c.wake = wake
		c.after(wake-now+time.Microsecond, func() {
			if c.wake == wake {
				c.wake = allocator.Never
				c.pump()
			}
		})
	}

	if tx == nil {
		return
	}

	batcher := c.batcher
	c.running = tx
	var batch *allocator.Batch
	c.batchTx(
		tx,
		func(d *database, skipped rows) { batch = c.decide(d, tx, skipped) },
		func(d *database) { c.saveBatch(d, batch) },
		func(ok bool) {
			c.running = nil
			var responses []func()
			var recalls map[wire.SessionID][]wire.Recall
			if ok {
				responses, recalls = batcher.Commit(tx)
			} else {
				responses = batcher.Fail(tx)
			}

			for _, session := range sortedKeys(recalls) {
				for _, r := range recalls[session] {
					c.recall(session, r)
				}
			}

			for _, respond := range responses {
				respond()
			}

			c.pump()
		},
	)
}

// decider is an allocator.Decider that decides by the rules of the world and checks
// the decisions.
type decider struct {
	c     *replica
	batch *allocator.Batch
}

// ApplyReturn implements allocator.Decider.
func (d *decider) ApplyReturn(ret *wire.Return) wire.ReturnResponse {
	d.c.w.checkBounds(ret.Session, len(ret.Reports))
	before := freeUnits(d.batch)
	response := d.c.w.rules.ApplyReturn(d.batch, ret)
	d.c.w.checkNothingTaken(d.batch, ret, before)
	d.c.w.checkReported(d.batch, ret, response.Status)
	return response
}

// Decide implements allocator.Decider.
func (d *decider) Decide(
	request *wire.LeaseRequest,
	pending *allocator.PendingRequest,
	applyPolicy func(*allocator.Batch),
) (*wire.LeaseResponse, bool) {
	w := d.c.w
	w.checkBounds(request.Session, len(request.Reports))
	before := d.batch.Results[allocator.RequestKey{Session: request.Session, Account: request.Account}]
	response, recalling := w.rules.Decide(d.batch, request, pending, func(b *allocator.Batch) { w.rules.Policy(b, request, applyPolicy) })
	if response == nil {
		return nil, recalling
	}

	w.checkFencedGrants(d.batch, request, response)
	if response.Status == wire.Wait {
		w.stats.count("requests that wait for a recall")
	}
	if response.Status == wire.Done && (before == nil || request.Number > before.Number) {
		w.checkDecisions(d.batch, request, response)
	}

	w.log(
		"%s: lease request %d of session %d, %s: %s %+v",
		d.c.name,
		request.Number,
		request.Session,
		request.Account,
		response.Status,
		response.Decisions,
	)
	copied := *response
	return &copied, recalling
}

// Recalls implements allocator.Decider.
func (d *decider) Recalls() map[wire.SessionID][]wire.Recall { return d.batch.Recalls() }

// rowsOf returns the rows that a batch locks.
func rowsOf(tx *allocator.Transaction) rows {
	r := rows{pools: map[wire.PoolID]bool{}, shared: map[wire.SessionID]bool{}}
	add := func(s wire.SessionID, reports []wire.LeaseReport) {
		r.shared[s] = true
		for _, report := range reports {
			r.pools[report.Pool] = true
		}
	}
	for _, ret := range tx.Returns() {
		add(ret.Session, ret.Reports)
	}
	for _, request := range tx.Requests() {
		add(request.Session, request.Reports)
		maps.Copy(r.pools, rowsOfRequest(request).pools)
	}
	return r
}

func rowsOfRequest(request *wire.LeaseRequest) rows {
	r := rows{pools: map[wire.PoolID]bool{}, shared: map[wire.SessionID]bool{request.Session: true}}
	for _, report := range request.Reports {
		r.pools[report.Pool] = true
	}
	for _, needs := range request.Needs {
		for _, n := range needs {
			r.pools[n.Pool] = true
		}
	}
	return r
}

// decide loads a batch and decides it.
func (c *replica) decide(d *database, tx *allocator.Transaction, skipped rows) *allocator.Batch {
	batch := c.loadBatch(d, tx, skipped)
	batch.LockedPools, batch.LockedSessions = skipped.pools, skipped.shared
	tx.Decide(&decider{c, batch})
	return batch
}

// saveBatch writes the changes of a batch.
func (c *replica) saveBatch(d *database, batch *allocator.Batch) {
	c.w.saveAllocator(batch.Allocator)
	for key, result := range batch.Results {
		if result.New {
			stored := *result
			stored.New = false
			d.results[key] = &stored
		}
	}
}

// loadBatch loads the state that a batch works on.
func (c *replica) loadBatch(d *database, tx *allocator.Transaction, skipped rows) *allocator.Batch {
	w := c.w
	r := rowsOf(tx).without(skipped)
	pools, sessions := r.pools, r.shared
	results, wanted := map[allocator.RequestKey]*allocator.Result{}, map[wire.PoolID]int64{}
	for _, request := range tx.Requests() {
		for _, needs := range request.Needs {
			for _, n := range needs {
				wanted[n.Pool] += n.Amount
			}
		}
		key := allocator.RequestKey{Session: request.Session, Account: request.Account}
		if last := d.results[key]; last != nil {
			stored := *last
			results[key] = &stored
		}
	}

	book := d.loadAllocator(pools, sessions)
	tenures := d.sessionRecords(sessions, d.now(w))
	for id := range sessions {
		t := tenures[id]
		book.EndedSessions[id] = t == nil || !t.MayAdmit()
	}

	d.holders(book, wanted)
	live := int64(0)
	for _, t := range d.activeSessions(d.now(w)) {
		if t.Remaining >= 0 {
			live++
		}
	}

	return &allocator.Batch{
		Allocator:   book,
		Sessions:    tenures,
		Results:     results,
		LiveProxies: live,
		SinceLoss:   d.now(w) - d.lostAt,
		Recovering:  d.recovering(),
	}
}

func (c *replica) recall(session wire.SessionID, r wire.Recall) {
	p := c.w.oracle.owner[session]
	if p == nil {
		return
	}
	c.w.stats.count("recalls")
	c.w.push(c, p, "recall", func() { p.handleRecall(session, r) })
}

// sweep marks expired sessions, which are fenced when the stream of changes has
// confirmed their ends, and closes those that expired more than closeAfter ago.
func (c *replica) sweep() {
	w := c.w
	c.tx("sweep", func(d *database) {
		heardFor := min(c.detector.ServingFor(c.clock().Mono), w.rules.PresentFor(&c.hearing, c.clock(), window))
		for _, id := range sortedKeys(d.sessions) {
			t := d.sessionRecord(id, d.now(w))
			switch {
			case w.locked(rows{beat: map[wire.SessionID]bool{id: true}}) > 0: // skip locked
			case c.expired(*t):
				if !t.Ending {
					w.stats.count("sessions that are to end")
					w.log("session %d is to end", id)
					w.checkEnding(id)
					d.sessions[id].ending = true
				}
			case d.recovering(): // a proxy that is fresh may not know the epoch
			case w.rules.SessionOver(t, heardFor, closeAfter) && w.locked(d.rowsOfSession(id)) == 0:
				w.stats.count("sessions closed after expiry")
				w.checkHeard(id)
				t.State = session.Closed
				d.saveSession(t, d.now(w))
				w.free(id)
			}
		}
	}, func(ok bool) {
		if ok {
			w.noteOutages()
			c.serving.Seen(c.clock(), window)
		}
		if ok && !w.busDown && !c.deaf && !c.mute {
			c.hearing.Seen(c.clock(), window)
		}
	})
}

// expired reports whether a session is to end, because its proxy is silent.
func (c *replica) expired(t session.Record) bool {
	t.Remaining = c.w.rules.Remaining(t.Remaining, c.servingFor(), window)
	return c.w.rules.SessionExpired(&t)
}

// free returns the outstanding units of a closed session.
func (w *world) free(id wire.SessionID) {
	w.checkClosing(id)
	pools := map[wire.PoolID]bool{}
	for pool, leases := range w.pg.leases {
		if leases[id] != nil {
			pools[pool] = true
		}
	}
	b := w.pg.loadAllocator(pools, map[wire.SessionID]bool{id: true})
	w.rules.CloseLeases(b, id)
	w.saveAllocator(b)
	for key := range w.pg.results {
		if key.Session == id {
			delete(w.pg.results, key)
		}
	}
}

func (c *replica) register(r *wire.RegisterRequest, reply func(wire.RegisterResponse)) {
	w := c.w
	var answer wire.RegisterResponse
	var read rollback.HighWaterMark
	c.lockedTx("register", rows{}, func(d *database) { read = d.mark }, func(d *database) {
		d.mark.Session++
		id := wire.SessionID(d.mark.Session)
		d.sessions[id] = &sessionRow{
			boot:    r.BootID,
			state:   session.Active,
			until:   d.now(w) + window,
			applied: read.Revision,
		}

		for _, e := range w.rules.EarlierSessions(r) {
			if e.Session < id && d.sessions[e.Session] == nil {
				d.sessions[e.Session] = &sessionRow{
					boot:     e.BootID,
					state:    session.Fenced,
					until:    d.now(w),
					restored: true,
				}
			}
		}

		answer = wire.RegisterResponse{
			V:                 wire.Version,
			Status:            wire.Done,
			Session:           id,
			WindowMS:          window.Milliseconds(),
			Revision:          read.Revision,
			StreamIncarnation: incarnation(d.incarnation),
			ClusterEpoch:      read.Epoch,
		}
	}, func(ok bool) {
		if ok {
			w.checkNewSession(answer.Session)
			reply(answer)
		}
	})
}

func incarnation(n int64) string { return string(rune('a' + n)) }

// maxChanges bounds the changes in one heartbeat response.
const maxChanges = 4

func (c *replica) heartbeat(r *wire.HeartbeatRequest, reply func(wire.HeartbeatResponse)) {
	w := c.w
	var answer wire.HeartbeatResponse
	var t *session.Record
	var at time.Duration
	extended := false
	c.lockedTx("heartbeat", rows{beat: map[wire.SessionID]bool{r.Session: true}}, func(d *database) {
		t, at = d.sessionRecord(r.Session, d.now(w)), d.now(w)
		if extended = w.rules.ExtendSession(t, r, window); !extended {
			answer = wire.HeartbeatResponse{V: wire.Version, Status: wire.Fenced}
			return
		}

		answer = wire.HeartbeatResponse{
			V:                 wire.Version,
			Status:            wire.Done,
			StreamIncarnation: incarnation(d.incarnation),
			ClusterEpoch:      d.mark.Epoch,
			UsageBacklog:      w.stream.backlog(),
		}

		for _, change := range d.changes {
			if change.Revision > r.AppliedRevision && len(answer.Changes) < maxChanges {
				answer.Changes = append(answer.Changes, change)
			}
		}

		answer.More = len(answer.Changes) == maxChanges
	}, func(d *database) {
		if extended {
			d.saveSession(t, at)
		}
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
		if w.locked(rows{beat: map[wire.SessionID]bool{r.Session: true}}) > 0 { // the row of the session
			return
		}

		t := d.sessionRecord(r.Session, d.now(w))
		before, settled := t.State, int64(0)
		if stored := d.sessions[r.Session]; stored != nil {
			settled = stored.settled.Count()
		}
		if w.rules.CloseSession(t, r, settled) {
			status = wire.Done
		}
		if t.State != before && t.BootID != r.BootID {
			w.fail("I10: session %d of the process %s is closed by the process %s", r.Session, t.BootID, r.BootID)
		}
		if d.sessions[r.Session] == nil {
			return
		}

		closes := before != session.Closed && t.State == session.Closed
		if closes && w.locked(d.rowsOfSession(r.Session)) > 0 {
			status = wire.Wait // the proxy repeats it
			return
		}

		d.saveSession(t, d.now(w))
		if closes {
			w.stats.count("sessions closed")
			d.sessions[r.Session].closedByProxy = true
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
		answer = wire.LoadKeyResponse{
			V:            wire.Version,
			Status:       wire.Done,
			ReadRevision: d.mark.Revision,
			Record:       d.keyRecord(cust, k),
		}
	}, func(ok bool) {
		if ok {
			reply(answer)
		}
	})
}

// keyRecord returns the record of a key; nil if Postgres has lost the key.
func (d *database) keyRecord(cust *customer, k *key) *wire.KeyRecord {
	limit := k.limit
	if d.pools[limit] == nil {
		return nil
	}
	if d.pools[limit].Unlimited {
		limit = 0
	}
	return &wire.KeyRecord{
		KeyID:       k.name,
		AccountID:   cust.name,
		Active:      d.revoked[k.hash] == 0 && !d.suspended[cust.name],
		BalancePool: cust.balance,
		SlotsPool:   cust.slots,
		LimitPool:   limit,
	}
}

// servingFor returns for how long the replica has served in the server incarnation
// without an absence.
func (c *replica) servingFor() time.Duration {
	return min(c.detector.ServingFor(c.clock().Mono), c.w.rules.PresentFor(&c.serving, c.clock(), window))
}
