package sim

import (
	"slices"
	"time"

	"modelgateway/shared/wire"
)

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
		found := p.cache[w.pg.secretsOf(k.hash).current]
		if found == nil || !p.mayUse(&found.record) || found.record.Rules.ExpiresMS != 0 ||
			!w.rules.IsCurrent(&p.invalidations, found.version) {
			continue
		}
		if found.record.LimitPool == 0 && found.record.KeySlotsPool == 0 {
			return k
		}
	}
	return nil
}
