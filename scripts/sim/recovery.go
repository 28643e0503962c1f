package sim

import (
	"fmt"
	"maps"
	"time"

	"modelgateway/shared/apikey"
	"modelgateway/shared/lease/rollback"
	"modelgateway/shared/lease/session"
)

// bucket is the recovery bucket.
type bucket struct {
	members rollback.Membership
	// revision changes with the membership.
	revision int
	revoked  map[apikey.Hash]recordedKey
}

// reach sends a request to the recovery bucket, which calls do, and then calls
// then. ok is false if do returned false, or if the request or its response was
// lost.
func (c *replica) reach(do func(a *bucket) bool, then func(ok bool)) {
	w := c.w
	hop := func() time.Duration { return w.between(100*time.Microsecond, 3*time.Millisecond) }
	c.after(hop(), func() {
		if w.busDown || c.mute {
			then(false)
			return
		}
		ok := do(&w.bucket)
		c.after(hop(), func() { then(ok && !w.busDown && !c.deaf && !w.chance(w.profile.TxUnknown)) })
	})
}

func (c *replica) readMembership(then func(members rollback.Membership, revision int, ok bool)) {
	var members rollback.Membership
	var revision int
	c.reach(func(a *bucket) bool {
		members, revision = a.members, a.revision
		members.Members = maps.Clone(members.Members)
		return true
	}, func(ok bool) { then(members, revision, ok) })
}

// putMembership replaces the membership, unless another replica has replaced that
// revision before.
func (c *replica) putMembership(members rollback.Membership, revision int, then func(ok bool)) {
	c.reach(func(a *bucket) bool {
		if a.revision != revision {
			return false
		}
		a.members, a.revision = members, revision+1
		a.members.Members = maps.Clone(members.Members)
		return true
	}, then)
}

// check makes one check, as recovery.Monitor does.
func (c *replica) check() {
	if c.checking {
		return
	}
	c.checking = true
	done := func(bool) { c.checking = false }
	c.readMembership(func(members rollback.Membership, revision int, ok bool) {
		switch {
		case c.detector.Incarnation() != "":
			c.checkpoint(members, revision, ok, nil, done)
		case ok:
			c.verify(members, revision, done)
		default:
			done(false)
		}
	})
}

// checkpoint commits a checkpoint, and writes the membership if the bus can be
// reached.
func (c *replica) checkpoint(members rollback.Membership, revision int, reached bool, silent []string, done func(bool)) {
	w := c.w
	if reached {
		silent = append(silent, c.detector.SilentReplicas(members, c.clock().Mono)...)
	}

	checkpoint, oldest, ok := c.detector.BeginCheckpoint()
	switch {
	case !ok:
		done(false)
		return
	case !reached:
		oldest = 0 // the last marker of the membership is unknown
	case members.LastMarker.Replica == checkpoint.Replica:
		oldest = min(oldest, members.LastMarker.N)
	}

	if w.pg.serverIncarnation != c.detector.Incarnation() { // a new connection would show the other incarnation
		c.detector.Failed(checkpoint)
		if !w.pgDown {
			c.detector.StopServing()
		}
		done(false)
		return
	}

	var observed rollback.Observation
	recovered := c.recoveredEpoch()
	c.commit("checkpoint", checkpoint, func(d *database) bool {
		observed = rollback.Observation{Mark: d.mark, Incarnation: d.serverIncarnation, Recovering: d.recovering()}
		if recovered == d.mark.Epoch {
			d.recovered = recovered
		}
		for marker := range d.markers {
			if marker.Replica == c.detector.ID() && marker.N < oldest {
				delete(d.markers, marker)
			}
		}
		if w.rules.FencesReplicas {
			for _, id := range silent {
				delete(d.replicas, id) // a fenced replica cannot commit any more
			}
		}
		return true
	}, func(ok bool) {
		if !ok || !reached {
			done(false)
			return
		}

		next, ok := w.rules.AfterCheckpoint(c.detector, members, observed, checkpoint, silent)
		if !ok {
			done(false)
			return
		}

		if len(silent) > 0 {
			w.stats.count("silent control planes fenced")
			w.log("%s fences %v", c.name, silent)
		}

		c.putMembership(next, revision, func(ok bool) {
			done(ok)
			if !ok && !w.busDown && c.alive {
				c.after(w.between(0, checkpointInterval/2), c.check) // another replica has written it
			}
		})
	})
}

// recoveredEpoch returns the cluster epoch whose recovery wait has ended; 0 if none
// has. Proxies must have had the time to read of the epoch.
func (c *replica) recoveredEpoch() int64 {
	recovered := c.detector.Epoch()
	if recovered != c.confirmedEpoch && c.w.rules.Changes.ConfirmsEpochs {
		return 0
	}
	return recovered
}

// leave stops the process gracefully: it removes itself from the membership first.
func (c *replica) leave() {
	if c.checking || c.detector.Incarnation() == "" {
		c.kill()
		return
	}
	c.checking = true
	c.w.stats.count("control planes stopped gracefully")
	c.readMembership(func(members rollback.Membership, revision int, ok bool) {
		c.checkpoint(members, revision, ok, []string{c.detector.ID()}, func(bool) { c.kill() })
	})
}

// transactionTime calls then after the time of one transaction, which may fail.
func (c *replica) transactionTime(then func(ok bool)) {
	w := c.w
	c.after(w.between(300*time.Microsecond, w.profile.TxTime), func() { then(!w.pgDown && !w.chance(w.profile.TxFail)) })
}

// verify observes a server incarnation in which the replica does not serve.
func (c *replica) verify(members rollback.Membership, revision int, done func(bool)) {
	w := c.w
	c.transactionTime(func(ok bool) {
		if !ok {
			done(false)
			return
		}

		observed := rollback.Observation{Mark: w.pg.mark, Incarnation: w.pg.serverIncarnation}
		for _, marker := range w.rules.MarkersToVerify(c.detector, members) {
			if !w.pg.markers[marker] {
				observed.MissingMarkers = append(observed.MissingMarkers, marker)
			}
		}

		next, action := w.rules.Observe(c.detector, members, observed, c.clock().Mono)
		w.log(
			"%s observes incarnation %s with %v: %d markers missing, action %d",
			c.name,
			observed.Incarnation,
			next.Members,
			len(observed.MissingMarkers),
			action,
		)

		switch action {
		case rollback.DeclareLoss:
			c.readMembership(func(later rollback.Membership, _ int, ok bool) {
				if !ok || (members.Outdated(later) && w.rules.ReadsMembershipAgain) {
					done(false)
					return
				}
				c.declare(members, observed, done)
			})
		case rollback.Wait:
			w.stats.count("waits for other control planes")
			c.putMembership(next, revision, done)
		case rollback.Serve:
			c.putMembership(next, revision, func(ok bool) {
				if !ok {
					done(false)
					return
				}
				c.join(observed, done)
			})
		}
	})
}

// declare declares a loss, unless another replica has.
func (c *replica) declare(members rollback.Membership, observed rollback.Observation, done func(bool)) {
	w := c.w
	c.transactionTime(func(ok bool) {
		if ok && w.pg.serverIncarnation == observed.Incarnation && w.pg.mark.Epoch == observed.Mark.Epoch {
			w.recoverLoss(members.Mark)
		}
		done(false)
	})
}

// join adds the replica in Postgres, and starts serving.
func (c *replica) join(observed rollback.Observation, done func(bool)) {
	w := c.w
	c.transactionTime(func(ok bool) {
		if ok = ok && w.pg.serverIncarnation == observed.Incarnation && w.pg.mark.Epoch == observed.Mark.Epoch; ok {
			w.pg.replicas[c.detector.ID()] = true
			c.detector.StartServing(observed, c.clock().Mono)
			w.stats.count("incarnations of Postgres verified")
		}
		done(ok)
	})
}

// restartPostgres starts another server incarnation of the same data.
func (w *world) restartPostgres() {
	if w.r.IntN(2) == 0 { // on another machine
		w.pg.clock = w.between(-w.profile.ClockSkew, w.profile.ClockSkew)
	}
	w.incarnations++
	clear(w.locks)
	w.pg.serverIncarnation = fmt.Sprintf("%d/%s", w.incarnations, w.pg.history)
	w.down(&w.pgDown, "postgres")
}

// recoverLoss declares that Postgres has lost commits.
func (w *world) recoverLoss(before rollback.HighWaterMark) {
	d := w.pg
	d.mark = w.rules.NextMark(before, d.mark)
	d.lostAt = d.now(w)
	w.renewServer(d)
	clear(d.replicas)

	for _, id := range sortedKeys(d.sessions) {
		if r := d.sessions[id]; r.state != session.Closed {
			r.state, r.until = session.Fenced, max(r.until, d.now(w))+window
		}
	}

	for _, secret := range sortedHashes(w.bucket.revoked) {
		of := w.bucket.revoked[secret]
		if d.revoked[of.key] == 0 && d.secretsOf(of.key).current == secret { // as the statement LostRevocations says
			w.rules.RestoreRevocation(d, of.account, of.key)
		}
	}

	w.stream.replay()
	w.oracle.declared()
	w.log("postgres has lost commits: epoch %d, revision %d, next session above %d", d.mark.Epoch, d.mark.Revision, d.mark.Session)
}

// renewServer begins a new history of commits, with a number of its own.
func (w *world) renewServer(d *database) {
	d.past[d.server] = d.commits
	w.server++
	d.server = w.server
}

// answeredCommits has, by server, the number of the last commit whose answer a
// replica has received.
type answeredCommits map[int]int64

// committed records that a replica has received the answer to a commit.
func (o *oracle) committed(server int, number, epoch int64) {
	if epoch == o.w.pg.mark.Epoch {
		o.answered[server] = max(o.answered[server], number)
	}
}

// lostCommits reports whether answered commits are missing in Postgres and no loss
// has been declared since.
func (o *oracle) lostCommits(d *database) bool {
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
	// Before the first checkpoint of an epoch, a restart cannot be told from a copy.
	restarted := o.w.profile.Keeps == rollback.KeepsOnRestart && o.w.bucket.members.LastMarker.N > 0
	switch {
	case o.lostCommits(o.w.pg):
		o.w.stats.count("losses of commits declared")
	case !o.restoredSince && restarted, o.w.profile.Keeps == rollback.KeepsOnFailover:
		o.w.fail("availability: a loss of commits is declared although Postgres keeps its commits")
	default:
		o.w.stats.count("losses of commits declared because of a silent replica")
	}
	o.restoredSince, o.lossDeclared = false, true
	clear(o.answered)
}

// checkLossDeclared checks that Postgres is not used while answered commits are
// missing and the loss is not declared.
func (w *world) checkLossDeclared() {
	if w.oracle.lostCommits(w.pg) {
		w.fail("I1: Postgres is used although answered commits are missing: answered %v, present %v and %d of server %d",
			w.oracle.answered, w.pg.past, w.pg.commits, w.pg.server)
	}
}
