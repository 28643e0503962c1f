package sim

import (
	"maps"
	"time"

	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/lease/rollback"
	"modelgateway/shared/wire"
)

const (
	// lockTimeout is how long a transaction may wait for row locks, idleInTransaction how long it may hold them without a
	// statement. Both are a tenth of the times in production.
	lockTimeout       = 500 * time.Millisecond
	idleInTransaction = 3 * time.Second
)

// rows are the rows that a transaction locks. It locks the sessions in shared so
// that no other transaction can close them.
type rows struct {
	pools  map[wire.PoolID]bool
	shared map[wire.SessionID]bool
	closed map[wire.SessionID]bool
}

// lock is the set of rows that one transaction has locked.
type lock struct {
	rows
	until time.Duration
}

// conflicts reports whether two transactions cannot hold their locks at the same
// time.
func (r rows) conflicts(other rows) bool {
	return overlap(r.pools, other.pools) || overlap(r.shared, other.closed) || overlap(r.closed, other.shared)
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
		w.checkBystanders(c.running)
		failed()
	default:
		w.stats.count("waits for locked rows")
		c.after(min(until-w.now, giveUp-w.now, 5*time.Millisecond)+time.Microsecond, func() { c.waitForRows(r, giveUp, then, failed) })
	}
}

// lockedTx runs a transaction that locks rows, reads, and writes a moment later.
// If the process is stopped in between, the rows stay locked until the server ends
// the transaction.
func (c *replica) lockedTx(name string, r rows, read, write func(d *database), done func(ok bool)) {
	transaction, ok := c.detector.Begin()
	if !ok {
		c.after(0, func() { done(false) })
		return
	}
	w, incarnation := c.w, c.detector.Incarnation()
	failed := func() {
		c.detector.Failed(transaction)
		done(false)
	}
	c.after(w.between(300*time.Microsecond, w.profile.TxTime), func() {
		if w.pgDown || w.pg.serverIncarnation != incarnation {
			failed()
			return
		}
		c.waitForRows(r, w.now+lockTimeout, func() {
			if w.pgDown || w.pg.serverIncarnation != incarnation {
				failed()
				return
			}
			mine := &lock{r, w.now + idleInTransaction}
			w.locks[transaction.CommitMarker] = mine
			read(w.pg)
			if w.chance(w.profile.HaltInTx) {
				w.stats.count("processes stopped inside a transaction")
				c.halted = max(c.halted, w.now+w.between(100*time.Millisecond, 2*sessionValid))
			}
			c.commitRows(name, transaction, mine, write, done)
		}, failed)
	})
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
	if !w.profile.Bystanders || tx == nil {
		return
	}
	for _, request := range tx.Requests() {
		if w.locked(rowsOfRequest(request)) == 0 {
			w.fail("availability: lease request %d of session %d, %s, fails because rows of others are locked", request.Number, request.Session, request.Account)
		}
	}
}

// poolsOf returns the rows of pools.
func poolsOf(pools ...wire.PoolID) rows {
	r := rows{pools: map[wire.PoolID]bool{}}
	for _, p := range pools {
		r.pools[p] = true
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
