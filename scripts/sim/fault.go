package sim

import (
	"fmt"
	"time"

	"modelgateway/shared/lease/rollback"
	"modelgateway/shared/wire"
)

// every calls do at random intervals around mean, until the world heals.
func (w *world) every(mean time.Duration, do func()) {
	var again func()
	again = func() {
		if w.healed {
			return
		}
		do()
		w.after(w.between(mean/2, mean*3/2), again)
	}
	w.after(w.between(0, mean), again)
}

// breakSomething causes one random fault.
func (w *world) breakSomething() {
	f := w.profile
	p := w.proxies[w.r.IntN(len(w.proxies))]
	c := w.replicas[w.r.IntN(len(w.replicas))]
	faults := []struct {
		weight float64
		do     func()
	}{
		{f.KillProxy, func() {
			if p.alive {
				p.kill(!w.chance(f.LoseSpool))
			}
		}},
		{f.Drain, func() {
			if p.alive && !p.draining {
				p.drain()
			}
		}},
		{f.KillReplica, func() {
			switch {
			case !c.alive:
			case w.r.IntN(2) == 0:
				c.leave()
			default:
				c.kill()
			}
		}},
		{f.Halt, func() { w.halt(p, c, false) }},
		{f.Suspend, func() { w.halt(p, c, true) }},
		{f.Cut, func() { w.cut(p, c) }},
		{f.BusDown, func() { w.down(&w.busDown, "bus") }},
		{f.PostgresDown, w.restartPostgres},
		{f.KillTogether, func() {
			w.stats.count("Postgres and a control plane killed together")
			if c.alive {
				c.kill()
			}
			w.restartPostgres()
		}},
		{f.LoseTail, func() { w.loseTail(w.between(50*time.Millisecond, 2*time.Second)) }},
		{f.DeleteStream, w.deleteStream},
		{f.KillFleet, func() {
			w.stats.count("all proxies killed")
			for _, p := range w.proxies {
				if p.alive {
					p.kill(true)
				}
			}
		}},
		{f.Outage, w.outage},
		{f.LoseCommits, w.loseCommits},
		{f.LoseCommits / 2, func() { w.strand(c) }},
		{f.LoseCommits / 2, func() { w.loseLastCommits(c) }},
		{f.NoQuorum, func() { w.down(&w.changes.down, "stream of changes") }},
		{f.LoseChanges, w.loseChanges},
		{f.NewChanges, w.createChangesAgain},
		{f.Minority, func() { w.separate(p) }},
	}

	total := 0.0
	for _, x := range faults {
		total += x.weight
	}

	pick := w.r.Float64() * total
	for _, x := range faults {
		if pick -= x.weight; pick < 0 {
			x.do()
			return
		}
	}
}

// madeUp is the generation in a report that is made up.
const madeUp = 1 << 40

// forge delivers a return of a faulty proxy: it reports more units than its
// session was ever granted, of any pool of any account.
func (w *world) forge() {
	p, c := w.proxies[w.r.IntN(len(w.proxies))], w.workingReplica()
	victim, named := w.customers[w.r.IntN(len(w.customers))], w.customers[w.r.IntN(len(w.customers))]
	pool := []wire.PoolID{victim.balance, victim.slots, victim.keys[w.r.IntN(len(victim.keys))].limit}[w.r.IntN(3)]
	if c == nil || !p.alive || p.session == 0 || w.oracle.lost || w.oracle.lossDeclared {
		return
	}

	w.stats.count("reports made up")
	granted := 1_000_000 + w.r.Int64N(1_000_000)
	c.takeReturn(&wire.Return{
		V:       wire.Version,
		Session: p.session,
		BootID:  p.boot,
		Account: named.name,
		Reports: []wire.LeaseReport{
			{Pool: pool, Generation: madeUp, GrantedSeen: granted, Returned: w.r.Int64N(granted)},
		},
	}, func(wire.ReturnResponse) {})
}

// impersonate delivers a message of a faulty proxy that knows session, account and
// numbers of another, but not the boot id of its process.
func (w *world) impersonate() {
	p, c, victim := w.proxies[w.r.IntN(len(w.proxies))], w.workingReplica(), w.customers[w.r.IntN(len(w.customers))]
	q := p.queues[victim.name]
	if c == nil || q == nil || p.session == 0 || w.oracle.lost || w.oracle.lossDeclared {
		return
	}

	w.stats.count("messages of another process")
	id, boot := p.session, p.boot+" made up"
	done := func(what string, status wire.Status) {
		if status == wire.Done {
			w.fail("I10: %s of the process %q has an effect on session %d", what, boot, id)
		}
	}

	pool := []wire.PoolID{victim.balance, victim.slots}[w.r.IntN(2)]
	report := wire.LeaseReport{Pool: pool, Generation: madeUp}
	if l := w.pg.leases[pool][id]; l != nil {
		report.GrantedSeen, report.Returned = l.Granted, l.Granted
	}

	switch w.r.IntN(5) {
	case 0, 1: // it guesses the number of the next lease request, or repeats the last one
		c.request(&wire.LeaseRequest{
			V:       wire.Version,
			Session: id,
			BootID:  boot,
			Account: victim.name,
			Number:  q.queue.LastNumber() + w.r.Int64N(2),
			Reports: []wire.LeaseReport{report},
			Needs:   [][]wire.Need{{{Pool: victim.balance, Kind: wire.Balance, Amount: 1}}},
		}, func(a wire.LeaseResponse) { done("a lease request", a.Status) })
	case 2:
		ret := &wire.Return{
			V:       wire.Version,
			Session: id,
			BootID:  boot,
			Account: victim.name,
			Reports: []wire.LeaseReport{report},
		}
		c.takeReturn(ret, func(a wire.ReturnResponse) { done("a return", a.Status) })
	case 3:
		c.heartbeat(&wire.HeartbeatRequest{
			V:               wire.Version,
			Session:         id,
			BootID:          boot,
			AppliedRevision: madeUp,
		}, func(a wire.HeartbeatResponse) { done("a heartbeat", a.Status) })
	case 4:
		c.close(&wire.CloseRequest{V: wire.Version, Session: id, BootID: boot}, func(wire.CloseResponse) {})
	}
}

// flood delivers a message of a faulty proxy with more reports than one sends.
func (w *world) flood() {
	p, c := w.proxies[w.r.IntN(len(w.proxies))], w.workingReplica()
	if c == nil || p.session == 0 {
		return
	}

	w.stats.count("messages beyond the bounds")
	reports := make([]wire.LeaseReport, wire.MaxReports+1)
	c.takeReturn(&wire.Return{
		V:       wire.Version,
		Session: p.session,
		BootID:  p.boot,
		Account: w.customers[0].name,
		Reports: reports,
	}, func(a wire.ReturnResponse) {
		if a.Status != wire.TooLarge {
			w.fail("a message with %d reports is answered %s", len(reports), a.Status)
		}
	})
}

// halt stops a process for a while, or suspends its machine.
func (w *world) halt(p *proxy, c *replica, suspend bool) {
	a := &p.actor
	if w.r.IntN(3) == 0 {
		a = &c.actor
	}
	d := w.between(100*time.Millisecond, 2*window)
	w.log("%s is stopped for %s, machine suspended: %v", a.name, d, suspend)
	if suspend {
		a.suspend(d)
		w.stats.count("machines suspended")
	} else {
		a.stop(d)
		w.stats.count("processes stopped")
	}
}

// cut loses all messages to a process, from it, or both, for a while.
func (w *world) cut(p *proxy, c *replica) {
	a := &p.actor
	if w.r.IntN(4) == 0 {
		a = &c.actor
	}
	which := w.r.IntN(3)
	a.deaf, a.mute = which != 1, which != 2
	w.stats.count([]string{"processes cut off", "processes that cannot send", "processes that cannot receive"}[which])
	w.log("%s is cut off: deaf %v, mute %v", a.name, a.deaf, a.mute)
	w.after(w.between(100*time.Millisecond, 2*window), func() { a.deaf, a.mute = false, false })
}

func (w *world) down(what *bool, name string) {
	*what = true
	w.stats.count(name + " down")
	w.log("%s is down", name)
	w.after(w.between(50*time.Millisecond, window), func() { *what = false })
}

// backUp copies the database. The last four copies are kept.
func (w *world) backUp() {
	w.copies = append(w.copies, w.pg.clone())
	if len(w.copies) > 4 {
		w.copies = w.copies[1:]
	}
}

// loseCommits restores the database from an older state: one of the kept copies, or
// the state of a moment ago.
func (w *world) loseCommits() {
	if w.r.IntN(3) == 0 {
		w.restore(w.copies[w.r.IntN(len(w.copies))])
		return
	}
	copied := w.pg.clone()
	w.after(w.between(0, 2*checkpointInterval), func() { w.restore(copied) })
}

// strand disconnects a replica from the bus until the other replicas consider it
// silent. Then the others stop gracefully, and recent commits are lost.
func (w *world) strand(c *replica) {
	c.deaf, c.mute = true, true
	w.log("%s is disconnected from the bus", c.name)
	d := w.between(silence, 3*silence)
	w.after(d, func() {
		for _, other := range w.replicas {
			if other != c && other.alive && !w.healed {
				other.leave()
			}
		}
		w.after(checkpointInterval, w.loseCommits)
	})
	w.after(d+w.between(checkpointInterval, silence), func() { c.deaf, c.mute = false, false })
}

// loseLastCommits stops a replica gracefully, and loses its last commits.
func (w *world) loseLastCommits(c *replica) {
	copied := w.pg.clone()
	w.after(w.between(0, checkpointInterval), func() {
		if c.alive && !w.healed {
			c.leave()
			w.after(w.between(0, checkpointInterval), func() { w.restore(copied) })
		}
	})
}

func (w *world) restore(copied *database) {
	if w.healed {
		return
	}

	before, restored := w.pg, copied.clone()
	if w.profile.Keeps == rollback.KeepsOnFailover {
		restored = before.clone() // replication is synchronous
	}

	switch {
	case restored.markers[w.bucket.members.LastMarker] || w.r.IntN(2) == 0:
		restored.history = fmt.Sprint("history ", w.server+1)
	case restored.history == before.history:
		w.stats.count("copies started on the same history")
	}

	w.stats.count("commits of Postgres lost")
	w.log("postgres is restored from a copy: rev %d instead of %d, session %d instead of %d",
		restored.mark.Revision, before.mark.Revision, restored.mark.Session, before.mark.Session)

	w.renewServer(restored)
	w.pg = restored
	w.oracle.restored(before, restored)
	w.restartPostgres()
}
