package sim

import (
	"maps"
	"time"

	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/lease/rollback"
	"modelgateway/shared/wire"
)

const (
	// lockTimeout is how long a transaction may wait for row locks, batchLockTimeout how long a batch waits before it leaves
	// out the messages whose rows are locked, idleInTransaction how long a transaction may hold locks without a statement.
	lockTimeout       = 500 * time.Millisecond
	batchLockTimeout  = 50 * time.Millisecond
	idleInTransaction = 300 * time.Millisecond
)

// rows are the rows that a transaction locks. It locks the sessions in shared so
// that no other transaction can close them.
type rows struct {
	pools  map[wire.PoolID]bool
	shared map[wire.SessionID]bool
	closed map[wire.SessionID]bool
	// beat are sessions that the transaction extends or fences.
	beat map[wire.SessionID]bool
}

// lock is the set of rows that one transaction has locked.
type lock struct {
	rows
	until time.Duration
}

// conflicts reports whether two transactions cannot hold their locks at the same
// time.
func (r rows) conflicts(other rows) bool {
	return overlap(r.pools, other.pools) || overlap(r.shared, other.closed) || overlap(r.closed, other.shared) ||
		overlap(r.beat, other.beat) || overlap(r.beat, other.closed) || overlap(r.closed, other.beat)
}

func overlap[K comparable](a, b map[K]bool) bool {
	for k := range a {
		if b[k] {
			return true
		}
	}
	return false
}

// locked returns the time until which other transactions have locked one of the
// rows, or zero if none has.
func (w *world) locked(r rows) (until time.Duration) {
	if !w.rules.LocksRows {
		return 0
	}
	for holder, l := range w.locks {
		if l.until <= w.now {
			delete(w.locks, holder)
		} else if r.conflicts(l.rows) {
			until = max(until, l.until)
		}
	}
	return until
}

// waitForRows calls then as soon as no other transaction has locked the rows, or
// failed at the time giveUp.
func (c *replica) waitForRows(r rows, giveUp time.Duration, then, failed func()) {
	w := c.w
	switch until := w.locked(r); {
	case until == 0:
		then()
	case w.now >= giveUp:
		w.stats.count("transactions that gave up waiting for rows")
		failed()
	default:
		w.stats.count("waits for locked rows")
		c.after(min(until-w.now, giveUp-w.now, 5*time.Millisecond)+time.Microsecond, func() { c.waitForRows(r, giveUp, then, failed) })
	}
}

// transaction is an open transaction on a connection to one server incarnation.
type transaction struct {
	rollback.Transaction
	name, incarnation string
	done              func(ok bool)
}

func (c *replica) fail(t transaction) {
	c.detector.Failed(t.Transaction)
	t.done(false)
}

// broken reports whether the connection of a transaction is broken.
func (c *replica) broken(t transaction) bool {
	return c.w.pgDown || c.w.pg.serverIncarnation != t.incarnation
}

// openTx begins a transaction, unless the replica does not serve, and calls then
// after the time of its first statement.
func (c *replica) openTx(name string, then func(t transaction), done func(ok bool)) {
	begun, ok := c.detector.Begin()
	if !ok {
		c.after(0, func() { done(false) })
		return
	}
	t := transaction{begun, name, c.detector.Incarnation(), done}
	c.after(c.w.between(300*time.Microsecond, c.w.profile.TxTime), func() {
		if c.broken(t) {
			c.fail(t)
			return
		}
		then(t)
	})
}

// lockedTx runs a transaction that locks rows, reads, and writes a moment later.
// If the process is stopped in between, the rows stay locked until the server ends
// the transaction.
func (c *replica) lockedTx(name string, r rows, read, write func(d *database), done func(ok bool)) {
	c.openTx(name, func(t transaction) {
		c.waitForRows(r, c.w.now+lockTimeout, func() { c.holdRows(t, r, read, write) }, func() { c.fail(t) })
	}, done)
}

// batchTx runs the transaction of a batch. If rows remain locked for some time, it
// leaves out the messages that need them, as later batches do at once.
func (c *replica) batchTx(batch *allocator.Transaction, read func(d *database, skipped rows), write func(d *database), done func(ok bool)) {
	w, r := c.w, rowsOf(batch)
	c.openTx("batch", func(t transaction) {
		hold := func(skipped rows) {
			for pool := range r.pools {
				delete(c.suspects, pool)
			}
			maps.Copy(c.suspects, skipped.pools)
			c.holdRows(t, r.without(skipped), func(d *database) { read(d, skipped) }, write)
		}

		skip := func() {
			if !w.rules.SkipsLockedRows {
				w.checkBystanders(batch)
				c.fail(t)
				return
			}
			skipped := w.lockedOf(r)
			if len(skipped.pools)+len(skipped.shared) > 0 {
				w.stats.count("batches that leave out messages because of locked rows")
			}
			hold(skipped)
		}
		if overlap(r.pools, c.suspects) {
			skip()
			return
		}

		c.waitForRows(r, w.now+batchLockTimeout, func() { hold(rows{}) }, skip)
	}, done)
}

// holdRows locks rows, reads, and commits.
func (c *replica) holdRows(t transaction, r rows, read, write func(d *database)) {
	w := c.w
	if c.broken(t) {
		c.fail(t)
		return
	}
	mine := &lock{r, w.now + idleInTransaction}
	w.locks[t.CommitMarker] = mine
	read(w.pg)
	if w.chance(w.profile.HaltInTx) {
		w.stats.count("processes stopped inside a transaction")
		c.stop(w.between(100*time.Millisecond, 2*window))
	}
	c.commitRows(t.name, t.Transaction, mine, write, t.done)
}

// lockedOf returns the pools and sessions among the rows that other transactions
// have locked.
func (w *world) lockedOf(r rows) rows {
	found := rows{pools: map[wire.PoolID]bool{}, shared: map[wire.SessionID]bool{}}
	for pool := range r.pools {
		if w.locked(poolsOf(pool)) > 0 {
			found.pools[pool] = true
		}
	}
	for s := range r.shared {
		if w.locked(rows{shared: map[wire.SessionID]bool{s: true}}) > 0 {
			found.shared[s] = true
		}
	}
	return found
}

// without returns the rows that are not among others.
func (r rows) without(other rows) rows {
	left := rows{pools: maps.Clone(r.pools), shared: maps.Clone(r.shared)}
	maps.DeleteFunc(left.pools, func(p wire.PoolID, _ bool) bool { return other.pools[p] })
	maps.DeleteFunc(left.shared, func(s wire.SessionID, _ bool) bool { return other.shared[s] })
	return left
}

func (c *replica) commitRows(name string, transaction rollback.Transaction, mine *lock, write func(d *database), done func(ok bool)) {
	w := c.w
	c.commit(name, transaction, func(d *database) bool {
		if w.locks[transaction.CommitMarker] != mine || (w.rules.LocksRows && mine.until <= w.now) {
			w.stats.count("transactions ended by the server")
			return false
		}
		delete(w.locks, transaction.CommitMarker)
		write(d)
		return true
	}, func(ok bool) {
		delete(w.locks, transaction.CommitMarker)
		done(ok)
	})
}

// writeTx runs a transaction that locks rows and writes them.
func (c *replica) writeTx(name string, r rows, do func(d *database), done func(ok bool)) {
	c.lockedTx(name, r, func(*database) {}, do, done)
}

// checkBystanders checks that a batch that gives up waiting for locks has no lease
// request whose own rows are not locked.
func (w *world) checkBystanders(tx *allocator.Transaction) {
	for _, request := range tx.Requests() {
		if w.locked(rowsOfRequest(request)) == 0 {
			w.fail(
				"availability: lease request %d of session %d, %s, fails because rows of others are locked",
				request.Number,
				request.Session,
				request.Account,
			)
		}
	}
}

// poolsOf returns the rows of pools.
func poolsOf(pools ...wire.PoolID) rows {
	r := rows{pools: map[wire.PoolID]bool{}}
	for _, p := range pools {
		if p != 0 {
			r.pools[p] = true
		}
	}
	return r
}

// rowsOfSession returns the rows that are locked to close a session.
func (d *database) rowsOfSession(id wire.SessionID) rows {
	r := rows{pools: map[wire.PoolID]bool{}, closed: map[wire.SessionID]bool{id: true}}
	for pool, leases := range d.leases {
		if leases[id] != nil {
			r.pools[pool] = true
		}
	}
	return r
}

// releaseRows ends the transactions of a process whose connections are closed.
func (c *replica) releaseRows() {
	maps.DeleteFunc(c.w.locks, func(m rollback.CommitMarker, _ *lock) bool { return m.Replica == c.detector.ID() })
}
