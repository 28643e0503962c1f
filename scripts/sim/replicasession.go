package sim

import (
	"time"

	"modelgateway/shared/lease/rollback"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

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
		if r.FinalCount == wire.NotFinal && t.State == session.Fenced {
			w.oracle.heardRunning[r.Session] = w.now
		}
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
