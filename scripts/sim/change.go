package sim

import (
	"fmt"
	"time"

	"modelgateway/shared/apikey"
	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

// key is an API key with the pool of its spend limit, if it has one.
type key struct {
	name  string
	hash  apikey.Hash
	limit wire.PoolID
	// slots is zero for a key without slots of its own.
	slots wire.PoolID
}

// pushPause is the time between two pushes of an unconfirmed change.
const pushPause = 250 * time.Millisecond

// workingReplica returns a random replica that runs, or nil if it finds none.
func (w *world) workingReplica() *replica {
	for range 4 {
		if c := w.replicas[w.r.IntN(len(w.replicas))]; c.alive && c.halted <= w.now {
			return c
		}
	}
	return nil
}

// revoke revokes a key. After the revocation is confirmed, no proxy may admit a
// request with the key.
func (w *world) revoke(cust *customer, k *key) {
	c := w.workingReplica()
	if c == nil {
		return
	}

	w.stats.count("revocations")
	var change wire.KeyChange
	var next *key
	c.tx("revoke", func(d *database) {
		change = d.revoke(cust.name, k.hash)
		next = w.newKey(d, cust.name)
	}, func(ok bool) {
		if !ok {
			return
		}

		w.checkNewPools(next)
		for i := range cust.keys {
			if cust.keys[i] == k {
				cust.keys[i] = next
			}
		}

		w.retired = append(w.retired, client{cust, k})
		w.log("key %s is revoked at rev %d", k.name, change.Revision)

		c.remember(cust.name, k.hash, &change, func() {
			c.announce(change, func() {
				w.stats.count("revocations confirmed")
				w.log("the revocation of %s is confirmed", k.name)
				w.oracle.revoked[k.hash] = true
			})
		})
	})
}

// remember records a revocation in the recovery bucket, for every secret of the key, and then calls then.
func (c *replica) remember(account string, key apikey.Hash, change *wire.KeyChange, then func()) {
	c.after(c.w.between(200*time.Microsecond, 3*time.Millisecond), func() {
		if !c.w.rules.KeepsRevocations {
			then()
			return
		}
		if c.w.busDown || c.mute || c.deaf {
			return // the revocation is never confirmed
		}
		for _, one := range c.w.rules.Keys.Recorded(change) {
			c.w.bucket.revoked[one.KeyHash] = recordedKey{account, key}
		}
		then()
	})
}

// client is a key with its account.
type client struct {
	cust *customer
	key  *key
}

// newKey creates a key, with or without a spend limit.
func (w *world) newKey(d *database, account string) *key {
	d.mark.Pool++
	w.nextKey++
	k := &key{
		name:  fmt.Sprintf("key %d", w.nextKey),
		hash:  apikey.Hash{byte(w.nextKey), byte(w.nextKey >> 8), 1},
		limit: wire.PoolID(d.mark.Pool),
	}
	p := &allocator.Pool{
		ID:         k.limit,
		Kind:       wire.Limit,
		Account:    account,
		Central:    true,
		Generation: 1,
	}
	if w.r.IntN(2) == 0 {
		p.Unlimited = true
		w.oracle.everUnlimited[k.limit] = true
	} else {
		p.Total = w.r.Int64N(w.profile.Limits)
		p.Free = p.Total
	}

	w.oracle.resized(k.limit, p.Total)
	d.pools[k.limit] = p
	if w.profile.KeySlots {
		w.addSlots(d, k, account)
	}
	return k
}

// suspend suspends or reactivates an account.
func (w *world) suspend(cust *customer, suspended bool) {
	c := w.workingReplica()
	if c == nil {
		return
	}

	w.stats.count("accounts suspended or reactivated")
	var change wire.KeyChange
	var released int
	c.tx("suspend", func(d *database) {
		d.suspended[cust.name] = suspended
		change = d.change(wire.AccountUpdated, cust.name, apikey.Hash{})
		if !suspended {
			w.oracle.suspended[cust.name] = false
			w.oracle.released[cust.name]++
		}
		released = w.oracle.released[cust.name]
	}, func(ok bool) {
		if !ok || !suspended {
			return
		}
		server := w.server
		c.announce(change, func() {
			// neither lost nor followed by a reactivation
			if w.pg.suspended[cust.name] && server == w.server && released == w.oracle.released[cust.name] {
				w.oracle.suspended[cust.name] = true
			}
		})
	})
}

// adjust makes a random change: a deposit, a correction, or a change of the slots
// or a key limit.
func (w *world) adjust(cust *customer) {
	c := w.workingReplica()
	if c == nil {
		return
	}

	w.stats.count("pools adjusted")
	k := cust.keys[w.r.IntN(len(cust.keys))]
	what, amount := w.r.IntN(6), w.r.Int64N(4000)
	confirmed := func() {}
	var change *wire.KeyChange
	c.writeTx("adjust", poolsOf(cust.balance, cust.slots, k.limit, k.slots), func(d *database) {
		change = nil
		announce := func(kind wire.KeyChangeKind, hash apikey.Hash) {
			made := d.change
			if kind == wire.KeyUpdated {
				made = d.changeKey
			}
			c := made(kind, cust.name, hash)
			change = &c
		}

		pool := cust.balance
		switch what {
		case 3:
			slots := 1 + amount%6
			if pool = cust.slots; d.pools[k.slots] != nil && amount%2 == 0 {
				pool = k.slots
				announce(wire.KeyUpdated, k.hash)
			} else {
				announce(wire.AccountUpdated, apikey.Hash{})
			}
			w.oracle.taken[pool] += max(d.pools[pool].Total-slots, 0)
			d.pools[pool].Resize(slots)
			resized := w.oracle.resized(pool, slots)
			confirmed = func() { resized.at = w.now }
		case 0, 1:
			d.pools[pool].Adjust(amount)
		case 2:
			d.pools[pool].Adjust(-amount)
			w.oracle.taken[pool] += amount
			announce(wire.AccountUpdated, apikey.Hash{})
		default:
			pool = k.limit
			if d.pools[pool] == nil {
				return
			}
			limit := &amount
			if what == 5 && amount%3 == 0 {
				limit = nil
			}
			before := d.pools[pool].Total
			d.pools[pool].SetLimit(limit)
			w.oracle.taken[pool] += max(before-d.pools[pool].Total, 0)
			if d.pools[pool].Unlimited {
				w.oracle.everUnlimited[pool] = true
			}
			limited := w.oracle.resized(pool, d.pools[pool].Total)
			confirmed = func() { limited.at = w.now }
			announce(wire.KeyUpdated, k.hash)
		}

		w.checkPool(d.pools[pool])
	}, func(ok bool) {
		if ok && change != nil {
			c.announce(*change, confirmed)
		}
	})
}

// topUp is the amount of one deposit in worlds with Profile.TopUps.
const topUp = 6000

// topUp makes a deposit if less than a quarter of one is left.
func (w *world) topUp(cust *customer) {
	c := w.workingReplica()
	if c == nil {
		return
	}
	c.writeTx("top up", poolsOf(cust.balance), func(d *database) {
		if p := d.pools[cust.balance]; p.Total-p.Settled < topUp/4 {
			w.stats.count("top-ups")
			p.Adjust(topUp)
			w.checkPool(p)
		}
	}, func(bool) {})
}

// announce tells all proxies of a committed change: it pushes it, and appends it to the
// stream of changes. Then it reads the sessions, and repeats all that until every session
// that may admit requests without the change has acknowledged it or has expired. Then it
// calls confirmed.
func (c *replica) announce(change wire.KeyChange, confirmed func()) {
	if c.w.announcing != nil {
		c.w.announcing(change)
	}
	pushed := change
	change.Before = nil
	a := &announcement{
		c:         c,
		change:    change,
		pushed:    pushed,
		confirmed: confirmed,
		until:     c.clock().Mono + longestDelay,
	}
	a.round()
}

// announcement is the state of one announcement.
type announcement struct {
	c      *replica
	change wire.KeyChange
	// pushed is the change with those before it that were committed together with it.
	pushed  wire.KeyChange
	barrier *session.Barrier
	// stored means that the stream of changes has the change, over that it is confirmed or lost.
	stored, over bool
	confirmed    func()
	until        time.Duration
}

func (a *announcement) round() {
	c, w := a.c, a.c.w
	if a.over || c.clock().Mono > a.until {
		return
	}
	if w.rules.TellsFirst {
		a.tell()
	}

	var active []session.ActiveSession
	kept, streamed := false, int64(0)
	c.tx("active sessions", func(d *database) {
		active, kept, streamed = nil, false, d.streamed
		for _, each := range d.changes {
			kept = kept || each == a.change
		}
		for _, t := range d.activeSessions(d.now(w)) {
			active = append(active, session.ActiveSession{
				Session:         t.ID,
				AppliedRevision: t.AppliedRevision,
				Window:          window,
			})
		}
		active = append(active, w.rules.UnknownSessions(d.recovering())...)
	}, func(ok bool) {
		switch {
		case ok && !kept:
			w.stats.count("changes lost before they were confirmed")
			a.over = true
			return
		case ok && a.barrier == nil:
			a.barrier = session.NewBarrier(a.change.Revision, active)
		case ok:
			a.barrier.Refresh(active)
		}

		if a.barrier != nil && (streamed >= a.change.Revision || c.streamConfirmed(a.change)) {
			a.barrier.Confirm(window)
		}
		if ok && !w.rules.TellsFirst {
			a.tell()
		}

		a.tellBound()
		a.check()
		c.after(pushPause, a.round)
	})
}

// tell pushes the change to every proxy, and appends it to the stream of changes.
func (a *announcement) tell() {
	c, w := a.c, a.c.w
	for _, p := range w.proxies {
		w.push(c, p, "change", func() {
			p.handlePushed(a.pushed, func(ack wire.Ack) {
				w.carry(&p.actor, &c.actor, "ack", func() {
					if a.barrier != nil {
						w.rules.Ack(a.barrier, ack)
					}
					a.check()
				})
			})
		})
	}

	if !a.stored {
		a.append(w.rules.Keys.Appended(&a.pushed))
	}
}

// append appends changes that were committed together to the stream of changes, one after the other.
func (a *announcement) append(changes []wire.KeyChange) {
	if len(changes) == 0 {
		a.stored = true
		return
	}
	a.c.append(confirming{change: changes[0]}, func(session.Place) { a.append(changes[1:]) })
}

// tellBound tells the time after which no proxy may admit without the change.
func (a *announcement) tellBound() {
	w, reach := a.c.w, session.Reach{Stored: a.stored, Read: a.barrier != nil}
	if a.barrier != nil {
		reach.Waiting = a.barrier.Waiting()
	}
	if bound, known := w.rules.Bound(reach); known && a.change.Kind == wire.KeyRevoked {
		w.stats.count("bounds told")
		key := w.oracle.ends.keyOf(a.change.KeyHash)
		if _, told := w.oracle.bounds[key]; !told {
			w.oracle.bounds[key] = w.now + bound
		}
	}
}

func (a *announcement) check() {
	if !a.over && a.barrier != nil && a.c.w.rules.BarrierDone(a.barrier) {
		a.over = true
		a.confirmed()
	}
}
