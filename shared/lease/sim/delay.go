package sim

import "time"

// longestDelay is the time after which a change is confirmed although a proxy does
// not apply it: by then its session has ended, and was fenced, or it is not fresh.
func (p *Profile) longestDelay() time.Duration {
	return max(sessionValid+margin, p.windowBound()) + time.Second
}

// checkRevocationDelay checks how long a revocation takes when a proxy does not get
// it at once, while no process fails and Postgres can be reached.
func (w *world) checkRevocationDelay() {
	first := w.proxies[0]
	w.pushesCut = true // the proxies learn of the change by their heartbeats
	w.checkRevoked("no pushed message arrives", min(w.profile.HeartbeatInterval, sessionValid/2)*11/10+4*w.profile.TxTime+500*time.Millisecond)
	w.pushesCut = false
	first.deaf = true // its heartbeats still arrive
	w.checkRevoked(first.name+" receives nothing", w.profile.longestDelay())
	first.deaf = false
	first.halted = w.now + w.profile.longestDelay()
	w.checkRevoked(first.name+" is stopped", w.profile.longestDelay())
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
	w.runUntil(w.now + w.profile.longestDelay() + sessionValid)
}
