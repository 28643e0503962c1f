package sim

import (
	"slices"

	"modelgateway/shared/limit"
	"modelgateway/shared/wire"
)

// projectsOf returns the projects of an account; the first stands for none.
func projectsOf(account string) []string { return []string{"", account + " left", account + " right"} }

// limitsFor returns the limits that apply to a key in a project: those of the project and of the account.
func (d *database) limitsFor(account, project string) []limit.Limit {
	return slices.DeleteFunc(d.limitsOf(account), func(l limit.Limit) bool {
		of := d.limits[l.ID].project
		return of != "" && of != project
	})
}

// buildProjects gives each account two projects with a limit, puts its keys into them, and schedules moves.
func (w *world) buildProjects(customers []*customer, some func() *customer) {
	for _, c := range customers {
		names := projectsOf(c.name)
		for _, name := range names[1:] {
			w.addLimit(w.pg, c.name, name)
		}
		for i, k := range c.keys {
			w.pg.projects[k.hash] = names[i%len(names)]
			w.oracle.moves[k.hash] = []string{names[i%len(names)]}
		}
	}
	w.firstLimits = w.nextLimit
	w.every(w.profile.LimitEvery, func() { w.moveKey(some()) })
	w.every(2*w.profile.LimitEvery, func() { w.pauseKey(some()) })
	if w.profile.KeyEvery > 0 {
		w.every(w.profile.KeyEvery, func() { w.rotateKey(some()) })
		w.every(w.profile.KeyEvery, func() { w.expireKey(some()) })
		w.every(w.profile.KeyEvery, func() { w.pauseKey(some()) })
	}
}

// moveKey moves a key to another project of its account, or out of its project. After the move is confirmed, no proxy may admit a
// request of the key by the limits of its former project, or without those of the present one.
func (w *world) moveKey(cust *customer) {
	c := w.workingReplica()
	if c == nil {
		return
	}

	k, to := cust.keys[w.r.IntN(len(cust.keys))], projectsOf(cust.name)[w.r.IntN(3)]
	if len(w.oracle.moves[k.hash]) == 0 {
		w.oracle.moves[k.hash] = []string{""}
	}
	var change wire.KeyChange
	move := 0
	c.writeTx("move key", rows{}, func(d *database) {
		d.projects[k.hash] = to
		change = d.changeKey(wire.KeyUpdated, cust.name, k.hash)
		w.oracle.moves[k.hash] = append(w.oracle.moves[k.hash], to)
		move = len(w.oracle.moves[k.hash]) - 1
	}, func(ok bool) {
		if !ok {
			return
		}
		w.stats.count("keys moved")
		w.log("key %s moves to project %q at rev %d", k.name, to, change.Revision)
		w.rules.Limits.Tell(c, change, func() {
			w.log("the move of %s to project %q is confirmed", k.name, to)
			w.oracle.moved[k.hash] = max(w.oracle.moved[k.hash], move)
		})
	})
}

// checkProject checks I11 for projects when a request is admitted: it counts in the limits of a project that its key is in or is
// about to be in, and in all that project had from the beginning and still has.
func (w *world) checkProject(r *request) {
	moves := w.oracle.moves[r.key.hash]
	if w.oracle.lost || len(moves) == 0 {
		return
	}

	possible, counts := moves[w.oracle.moved[r.key.hash]:], map[int64]bool{}
	for _, pool := range r.windows {
		id, _, _ := limit.OfPool(int64(pool))
		counts[id] = true
		if row := w.pg.limits[id]; row != nil && row.project != "" && !slices.Contains(possible, row.project) {
			w.fail(
				"I11: %s admits a request of %s by limit %d of project %q, which the key has left for %q",
				r.p.name,
				r.key.name,
				id,
				row.project,
				possible,
			)
		}
	}

	if len(possible) > 1 {
		return
	}
	for _, l := range w.pg.limitsFor(r.customer.name, possible[0]) {
		if row := w.pg.limits[l.ID]; row.project != "" && l.ID <= w.firstLimits && !counts[l.ID] {
			w.fail("I11: %s admits a request of %s without limit %d of project %q", r.p.name, r.key.name, l.ID, row.project)
		}
	}
}
