package sim

import (
	"maps"
	"time"

	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/wire"
)

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
	c.withWindows(tx, func(moved map[wire.PoolID]wire.PoolID) { c.runBatch(batcher, tx, moved) }, func() {
		c.running = nil
		for _, respond := range batcher.Fail(tx) {
			respond()
		}
		c.pump()
	})
}

// runBatch runs the transaction of a batch.
func (c *replica) runBatch(batcher *allocator.Batcher, tx *allocator.Transaction, moved map[wire.PoolID]wire.PoolID) {
	var batch *allocator.Batch
	c.batchTx(
		tx,
		func(d *database, skipped rows) { batch = c.decide(d, tx, skipped, moved) },
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

func (d *decider) ApplyReturn(ret *wire.Return) wire.ReturnResponse {
	d.c.w.checkBounds(ret.Session, len(ret.Reports))
	before := freeUnits(d.batch)
	response := d.c.w.rules.ApplyReturn(d.batch, ret)
	d.c.w.checkNothingTaken(d.batch, ret, before)
	d.c.w.checkReported(d.batch, ret, response.Status)
	return response
}

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
func (c *replica) decide(d *database, tx *allocator.Transaction, skipped rows, moved map[wire.PoolID]wire.PoolID) *allocator.Batch {
	batch := c.loadBatch(d, tx, skipped)
	batch.Allocator.Moved = moved
	c.w.endRaises(batch.Allocator.Pools)
	for _, p := range batch.Allocator.Pools {
		p.Ended = p.EndMS != 0 && c.w.wallMS() >= p.EndMS
	}
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
