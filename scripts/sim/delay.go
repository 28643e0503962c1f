package sim

import (
	"time"

	"modelgateway/shared/wire"
)

// longestDelay is the time after which a change is confirmed although a proxy does
// not apply it: by then the proxy is not fresh.
const longestDelay = windowBound + time.Second

// checkRevocationDelay checks how long a revocation takes when a proxy does not get
// it at once, while no process fails and Postgres can be reached.
func (w *world) checkRevocationDelay() {
	first := w.proxies[0]
	w.pushesCut = true // the proxies learn of the change by their heartbeats
	w.checkRevoked(
		"no pushed message arrives",
		min(w.profile.HeartbeatInterval, window/2)*11/10+4*w.profile.TxTime+500*time.Millisecond,
	)
	w.pushesCut = false
	first.deaf = true // its heartbeats still arrive
	w.checkRevoked(first.name+" receives nothing", longestDelay)
	first.deaf = false
	first.halted = w.now + longestDelay
	w.checkRevoked(first.name+" is stopped", longestDelay)
	w.checkToldWithoutPostgres()
	w.checkToldWithoutStream()
}

// breakAtAnnouncement revokes a key, and breaks something when the revocation is
// committed and a replica begins to announce it.
func (w *world) breakAtAnnouncement(c *customer, k *key, fault func()) {
	begun := false
	w.announcing = func(change wire.KeyChange) {
		if w.oracle.ends.keyOf(change.KeyHash) == k.hash && !begun {
			begun = true
			fault()
		}
	}
	w.revoke(c, k)
	for limit := w.now + 5*time.Second; !begun; w.runUntil(w.now + 20*time.Millisecond) {
		if w.now > limit {
			w.fail("liveness: the revocation of %s is not announced", k.name)
		}
	}
	w.announcing = nil
}

// keyInUse returns a key that a proxy would admit without a control plane, if there is
// one.
func (w *world) keyInUse() (*customer, *key) {
	for _, p := range w.proxies {
		for _, c := range w.customers {
			k, q := w.unlimitedKey(p, c), p.queues[c.name]
			if k != nil && q != nil && q.covers([]wire.Need{{Pool: c.balance, Amount: 1}}) {
				return c, k
			}
		}
	}
	c := w.customers[w.r.IntN(len(w.customers))]
	return c, c.keys[w.r.IntN(len(c.keys))]
}

// checkToldWithoutPostgres checks that proxies learn of the revocation of every secret of a key at
// once if Postgres stops right after the commit.
func (w *world) checkToldWithoutPostgres() {
	c, k := w.keyInUse()
	w.breakAtAnnouncement(c, k, func() { w.pgDown = true })
	w.runUntil(w.now + time.Second)
	for _, secret := range w.pg.secretsOf(k.hash).changed(wire.KeyRevoked, 0) {
		if _, stored := w.storedRevocation(secret); !stored {
			w.fail("liveness: the stream lacks the committed revocation of a secret of %s after a second without Postgres", k.name)
		}
	}
	w.pgDown = false
	w.runUntil(w.now + longestDelay + window)
}

// checkToldWithoutStream plays requests of a key whose revocation the stream does not
// take before all control planes stop. The stream continues, so proxies are fresh: no
// time may have been told after which they refuse the key.
func (w *world) checkToldWithoutStream() {
	const delay = longestDelay
	c, k := w.keyInUse()
	w.breakAtAnnouncement(c, k, func() { w.changes.down, w.pushesCut = true, true })
	w.runUntil(w.now + 200*time.Millisecond) // the time is told

	for _, replica := range w.replicas {
		replica.stop(2 * delay)
	}

	w.changes.down = false
	w.runUntil(w.now + delay)

	for _, p := range w.proxies {
		p.accept(&request{
			id:       w.newRequestID(),
			customer: c,
			key:      k,
			amount:   1,
			duration: time.Millisecond,
		})
	}

	w.pushesCut = false
	w.runUntil(w.now + 2*delay + window)
}

// checkRevoked revokes a key and checks that this is confirmed in time. Then it
// waits until all proxies have valid sessions again.
func (w *world) checkRevoked(what string, limit time.Duration) {
	c := w.customers[w.r.IntN(len(w.customers))]
	k := c.keys[w.r.IntN(len(c.keys))]
	begun := w.now
	w.revoke(c, k)
	for !w.oracle.revoked[k.hash] {
		if w.now-begun >= limit {
			w.fail("liveness: the revocation of %s is not confirmed after %s, while %s", k.name, limit, what)
		}
		w.runUntil(w.now + 20*time.Millisecond)
	}
	w.log("the revocation of %s is confirmed after %s, while %s", k.name, w.now-begun, what)
	w.runUntil(w.now + longestDelay + window)
}
