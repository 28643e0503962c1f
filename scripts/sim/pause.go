package sim

import "modelgateway/shared/wire"

// pauseKey pauses a key, or resumes it. After a pause is confirmed, no proxy may admit a request of the key.
func (w *world) pauseKey(cust *customer) {
	c := w.workingReplica()
	if c == nil {
		return
	}

	k, paused := cust.keys[w.r.IntN(len(cust.keys))], w.r.IntN(3) == 0
	var change wire.KeyChange
	resumed := 0
	c.writeTx("pause key", rows{}, func(d *database) {
		d.paused[k.hash] = paused
		change = d.changeKey(wire.KeyUpdated, cust.name, k.hash)
		if !paused {
			w.oracle.paused[k.hash] = false
			w.oracle.unpaused[k.hash]++
		}
		resumed = w.oracle.unpaused[k.hash]
	}, func(ok bool) {
		if !ok {
			return
		}
		server := w.server
		w.log("key %s is paused: %t, at rev %d", k.name, paused, change.Revision)
		w.rules.Limits.TellPause(c, change, func() {
			// neither lost nor followed by a resumption
			if paused && w.pg.paused[k.hash] && server == w.server && resumed == w.oracle.unpaused[k.hash] {
				w.stats.count("pauses of keys confirmed")
				w.log("the pause of %s is confirmed", k.name)
				w.oracle.paused[k.hash] = true
			}
		})
	})
}
