package sim

import (
	"maps"
	"time"

	"modelgateway/shared/apikey"
	"modelgateway/shared/lease/rollback"
	"modelgateway/shared/lease/session"
)

// anchor is what the control planes keep outside of Postgres.
type anchor struct {
	roll rollback.Membership
	// rev changes with the roll.
	rev     int
	revoked map[apikey.Hash]string
}

// reach does something at the bus, and something here after it; ok is false if
// the bus cannot be reached or the answer is lost.
func (c *replica) reach(do func(a *anchor) bool, then func(ok bool)) {
	w := c.w
	hop := func() time.Duration { return w.between(100*time.Microsecond, 3*time.Millisecond) }
	c.after(hop(), func() {
		if w.busDown || c.mute {
			then(false)
			return
		}
		ok := do(&w.anchor)
		c.after(hop(), func() { then(ok && !w.busDown && !c.deaf && !w.chance(w.profile.TxUnknown)) })
	})
}

func (c *replica) readRoll(then func(roll rollback.Membership, rev int, ok bool)) {
	var roll rollback.Membership
	var rev int
	c.reach(func(a *anchor) bool {
		roll, rev = a.roll, a.rev
		roll.Members = maps.Clone(roll.Members)
		return true
	}, func(ok bool) { then(roll, rev, ok) })
}

// putRoll replaces the roll, unless somebody else has.
func (c *replica) putRoll(roll rollback.Membership, rev int, then func(ok bool)) {
	c.reach(func(a *anchor) bool {
		if a.rev != rev {
			return false
		}
		a.roll, a.rev = roll, rev+1
		a.roll.Members = maps.Clone(roll.Members)
		return true
	}, then)
}

// look compares Postgres with what is known of it elsewhere.
func (c *replica) look() {
	if c.looking {
		return
	}
	c.looking = true
	done := func(bool) { c.looking = false }
	c.readRoll(func(roll rollback.Membership, rev int, ok bool) {
		switch {
		case c.attendant.Incarnation() != "":
			c.stay(roll, rev, ok, nil, done)
		case ok:
			c.enter(roll, rev, done)
		default:
			done(false)
		}
	})
}

// stay beats, and says so if the bus can be reached.
func (c *replica) stay(roll rollback.Membership, rev int, reached bool, silent []string, done func(bool)) {
	w := c.w
	if reached {
		silent = append(silent, c.attendant.SilentReplicas(roll, c.clock().Mono)...)
	}
	beat, oldest, ok := c.attendant.BeginCheckpoint()
	if !ok {
		done(false)
		return
	}
	if w.pg.life != c.attendant.Incarnation() { // found out by the next new connection
		c.attendant.Failed(beat)
		if !w.pgDown {
			c.attendant.StopServing()
		}
		done(false)
		return
	}
	var found rollback.Observation
	c.commit("beat", beat, func(d *database) {
		found = rollback.Observation{Mark: d.mark, Incarnation: d.life}
		for witness := range d.witnesses {
			if witness.Replica == c.attendant.ID() && witness.N < oldest {
				delete(d.witnesses, witness)
			}
		}
		if w.rules.Fences {
			for _, id := range silent {
				delete(d.replicas, id) // it commits nothing more
			}
		}
	}, func(ok bool) {
		if !ok || !reached {
			done(false)
			return
		}
		next, ok := w.rules.Stay(c.attendant, roll, found, beat, silent)
		if !ok {
			done(false)
			return
		}
		if len(silent) > 0 {
			w.stats.count("silent control planes struck off")
			w.log("%s strikes off %v", c.name, silent)
		}
		c.putRoll(next, rev, func(ok bool) {
			done(ok)
			if !ok && !w.busDown && c.alive {
				c.after(w.between(0, beatEvery/2), c.look) // somebody else has put it
			}
		})
	})
}

// retire ends the process in order: it takes itself out of the roll.
func (c *replica) retire() {
	if c.looking || c.attendant.Incarnation() == "" {
		c.kill()
		return
	}
	c.looking = true
	c.w.stats.count("control planes ended in order")
	c.readRoll(func(roll rollback.Membership, rev int, ok bool) {
		c.stay(roll, rev, ok, []string{c.attendant.ID()}, func(bool) { c.kill() })
	})
}

// pause is about the time of one transaction.
func (c *replica) pause(then func(ok bool)) {
	w := c.w
	c.after(w.between(300*time.Microsecond, w.profile.TxTime), func() { then(!w.pgDown && !w.chance(w.profile.TxFail)) })
}

// enter looks at a life of Postgres that is not served in.
func (c *replica) enter(roll rollback.Membership, rev int, done func(bool)) {
	w := c.w
	c.pause(func(ok bool) {
		if !ok {
			done(false)
			return
		}
		found := rollback.Observation{Mark: w.pg.mark, Incarnation: w.pg.life}
		for _, witness := range w.rules.Asks(c.attendant, roll) {
			if !w.pg.witnesses[witness] {
				found.MissingMarkers = append(found.MissingMarkers, witness)
			}
		}
		next, advice := w.rules.Look(c.attendant, roll, found, c.clock().Mono)
		w.log("%s looks at life %s with %v: %d missing, advice %d", c.name, found.Incarnation, next.Members, len(found.MissingMarkers), advice)
		switch advice {
		case rollback.DeclareLoss:
			c.pause(func(ok bool) {
				if ok && w.pg.life == found.Incarnation && w.pg.mark.Epoch == found.Mark.Epoch { // or it is declared already
					w.recoverLoss(roll.Mark)
				}
				done(false)
			})
		case rollback.Wait:
			w.stats.count("control planes waited for")
			c.putRoll(next, rev, done)
		case rollback.Serve:
			c.putRoll(next, rev, func(ok bool) {
				if !ok {
					done(false)
					return
				}
				c.attend(found, done)
			})
		}
	})
}

// attend makes the replica known to Postgres, and begins to serve.
func (c *replica) attend(found rollback.Observation, done func(bool)) {
	w := c.w
	c.pause(func(ok bool) {
		if ok = ok && w.pg.life == found.Incarnation && w.pg.mark.Epoch == found.Mark.Epoch; ok {
			w.pg.replicas[c.attendant.ID()] = true
			c.attendant.StartServing(found)
			w.stats.count("lives of Postgres entered")
		}
		done(ok)
	})
}

// restartPostgres begins another life of what is there.
func (w *world) restartPostgres() {
	w.lives++
	w.pg.life = string(rune('a'+w.lives%26)) + string(rune('a'+w.lives/26))
	w.down(&w.pgDown, "postgres")
}

// recoverLoss declares that Postgres has lost commits.
func (w *world) recoverLoss(before rollback.HighWaterMark) {
	d := w.pg
	d.mark = w.rules.Next(before, d.mark)
	d.lostAt = w.now
	w.renewServer(d)
	clear(d.replicas)
	for _, id := range sortedKeys(d.sessions) {
		if r := d.sessions[id]; r.state != session.Closed {
			r.state, r.until = session.Fenced, max(r.until, w.now)+sessionValid
		}
	}
	for _, key := range sortedHashes(w.anchor.revoked) {
		if d.revoked[key] == 0 {
			w.rules.Revoke(d, w.anchor.revoked[key], key)
		}
	}
	w.stream.replay()
	w.oracle.declared()
	w.log("postgres has lost commits: epoch %d, rev %d, next session above %d", d.mark.Epoch, d.mark.Revision, d.mark.Session)
}

// renewServer has the oracle tell what comes from what was.
func (w *world) renewServer(d *database) {
	d.past[d.server] = d.commits
	w.server++
	d.server = w.server
}

// answered are the last commits that were answered, by server.
type answered map[int]int64

// committed notes a commit that was answered.
func (o *oracle) committed(server int, number, epoch int64) {
	if epoch == o.w.pg.mark.Epoch {
		o.answered[server] = max(o.answered[server], number)
	}
}

// lacks tells whether Postgres lacks commits that were answered, and it was not declared.
func (o *oracle) lacks(d *database) bool {
	for server, number := range o.answered {
		if server == d.server {
			if number > d.commits {
				return true
			}
		} else if number > d.past[server] {
			return true
		}
	}
	return false
}

func (o *oracle) declared() {
	if o.lacks(o.w.pg) {
		o.w.stats.count("losses of commits declared")
	} else {
		o.w.stats.count("losses of commits declared for silence alone")
	}
	clear(o.answered)
}

// checkNoticed is what epochs are for: a Postgres that lacks what was answered
// is not used.
func (w *world) checkNoticed() {
	if w.oracle.lacks(w.pg) {
		w.fail("I1: Postgres is used without commits that were answered: %v were, of %v and %d of server %d it has all",
			w.oracle.answered, w.pg.past, w.pg.commits, w.pg.server)
	}
}
