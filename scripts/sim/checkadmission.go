package sim

import (
	"slices"
	"time"

	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

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
	if o.paused[r.key.hash] {
		w.fail("I4: %s admits key %s after its pause was confirmed", p.name, r.key.name)
	}
	w.checkEnds(r)
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

	needs := append([]wire.PoolID{r.record.BalancePool}, r.slots()...)

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

	for _, pool := range r.slots() {
		w.checkSlots(r, pool)
	}
	w.checkLimit(r, r.record.LimitPool)
	for _, pool := range r.windows {
		w.checkLimit(r, pool)
	}
	w.checkWindows(r)
}

// checkLimit checks I2 for a limit: when a request is admitted, what the key's requests use and have used is at most the
// greatest limit of the last second.
func (w *world) checkLimit(r *request, pool wire.PoolID) {
	if pool == 0 || w.oracle.lost || w.oracle.everUnlimited[pool] || w.pg.pools[pool] == nil || w.pg.pools[pool].Late > 0 {
		return
	}
	used := r.amount + w.oracle.used[pool]
	for _, p := range w.proxies {
		for _, x := range p.running {
			if x != r && x.started && !x.lost && (x.key.limit == pool || slices.Contains(x.windows, pool)) {
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

// checkSlots checks I2 for slots: the running requests of an account or a key are at
// most the greatest number of slots that it has had since the oldest of them was
// admitted.
func (w *world) checkSlots(r *request, pool wire.PoolID) {
	if w.oracle.lost {
		return
	}
	running, since := int64(0), w.now
	for _, p := range w.proxies {
		for _, x := range p.running {
			t := w.pg.sessions[x.session]
			if x.started && !x.lost && slices.Contains(x.slots(), pool) && t != nil && t.state != session.Closed {
				running, since = running+1, min(since, x.admittedAt)
			}
		}
	}
	if most := w.oracle.most(pool, since); running > most {
		w.fail("I2: %d requests of %s run on %d slots of pool %d", running, r.customer.name, most, pool)
	}
}
