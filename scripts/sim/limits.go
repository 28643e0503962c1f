package sim

import (
	"errors"
	"slices"
	"time"

	"modelgateway/shared/apikey"
	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/lease/holder"
	"modelgateway/shared/limit"
	"modelgateway/shared/wire"
)

// LimitRules are the steps by which requests count in the windows of limits. The correct ones are those of shared/limit and holder.
type LimitRules struct {
	// Never leaves all limits out.
	Never bool
	// Check says whether a request may count in a window, Restore makes one again that was lost with commits.
	Check   func(s *limit.Series, number, nowMS int64) (right limit.Span, accepted bool, err error)
	Restore func(s *limit.Series, number, nowMS int64) (limit.Span, error)
	// Make makes the pool of a window, if there is none.
	Make func(d *database, p *allocator.Pool)
	// UseUntil tells a queue when the window of a pool ends.
	UseUntil func(q *holder.Queue, pool wire.PoolID, at time.Duration)
	// Charged are the pools that are charged for a finished request.
	Charged func(r *request) []wire.PoolID
	// EndRaise lowers the pool of a window at the end of a raise.
	EndRaise func(p *allocator.Pool, nowMS int64)
	// Move tells a proxy of the right window of a limit.
	Move func(w *limit.Windows, l *limit.Limit, pool, nowMS int64)
	// Tell tells the proxies that a key has moved to another project.
	Tell func(c *replica, change wire.KeyChange, confirmed func())
	// TellPause tells them that a key is paused or resumed.
	TellPause func(c *replica, change wire.KeyChange, confirmed func())
}

func correctLimits() *LimitRules {
	return &LimitRules{
		Check:   (*limit.Series).Check,
		Restore: (*limit.Series).Restore,
		Make: func(d *database, p *allocator.Pool) {
			if d.pools[p.ID] == nil {
				d.pools[p.ID] = p
			}
		},
		UseUntil:  (*holder.Queue).UseUntil,
		EndRaise:  (*allocator.Pool).EndRaise,
		Charged:   func(r *request) []wire.PoolID { return r.windows },
		Move:      (*limit.Windows).Move,
		Tell:      (*replica).announce,
		TellPause: (*replica).announce,
	}
}

// begunMS is the time of day at which worlds begin, in milliseconds since 1970; tolerance takes the place of limit.Tolerance.
const (
	begunMS   = 1_000_000_000
	tolerance = 2500 * time.Millisecond
)

// limitRow is the row of a limit of an account, or of one of its projects.
type limitRow struct {
	limit.Limit
	account, project string
	amount           int64
	removed          bool
	// raisedBy is by what the limit is raised until raisedUntilMS.
	raisedBy, raisedUntilMS int64
}

// amountAt returns the amount that holds at a time, and by what and until when it is raised.
func (r *limitRow) amountAt(nowMS int64) (total, raisedBy, untilMS int64) {
	if nowMS >= r.raisedUntilMS {
		return r.amount, 0, 0
	}
	return r.amount + r.raisedBy, r.raisedBy, r.raisedUntilMS
}

func (r *limitRow) series() *limit.Series {
	return &limit.Series{Window: r.Window, Newest: r.Newest, Tolerance: tolerance}
}

// wallMS is the wall clock of the server, which is right: how far it may be wrong is part of the clocks of the proxies.
func (w *world) wallMS() int64 { return begunMS + w.now.Milliseconds() }

// wallMS is the wall clock of a proxy.
func (p *proxy) wallMS() int64 { return begunMS + (p.w.now + p.wallOffset).Milliseconds() }

// zeroMS is the zero of its monotonic clock by its wall clock.
func (p *proxy) zeroMS() int64 { return p.wallMS() - p.clock().Mono.Milliseconds() }

// limitsOf returns the limits of an account and its projects, in the order of their ids.
func (d *database) limitsOf(account string) (limits []limit.Limit) {
	for _, id := range sortedKeys(d.limits) {
		if row := d.limits[id]; row.account == account && !row.removed {
			limits = append(limits, row.Limit)
		}
	}
	return limits
}

// addLimit adds a limit to an account or one of its projects, with short windows of a random period.
func (w *world) addLimit(d *database, account, project string) {
	w.nextLimit++
	row := &limitRow{account: account, project: project, amount: w.r.Int64N(w.profile.Limits)}
	if w.r.IntN(3) == 0 {
		row.amount = 100_000
	}
	row.ID, row.Scope = w.nextLimit, limit.Account
	if project != "" {
		row.Scope = limit.Project
	}
	row.Window = []limit.Window{
		{Period: limit.Forever},
		{Period: limit.Fixed, LengthSeconds: 2 + w.r.Int64N(w.profile.Windows), AnchorUnix: w.r.Int64N(5)},
		{Period: limit.FirstUse, LengthSeconds: 2 + w.r.Int64N(w.profile.Windows)},
	}[(w.nextLimit+w.r.Int64N(2))%3]
	d.limits[row.ID] = row
}

// buildLimits adds limits to accounts and schedules their changes, and sets the clocks of the proxies.
func (w *world) buildLimits(customers []*customer, some func() *customer) {
	for _, c := range customers {
		w.addLimit(w.pg, c.name, "")
		w.addLimit(w.pg, c.name, "")
	}
	w.buildProjects(customers, some)
	for _, p := range w.proxies {
		p.wallOffset = w.between(-maxWallOffset, maxWallOffset)
	}
	w.every(w.profile.LimitEvery, func() { w.adjustLimits(some()) })
}

// adjustLimits adds, removes, lowers or raises a limit of an account.
func (w *world) adjustLimits(cust *customer) {
	c := w.workingReplica()
	if c == nil {
		return
	}

	what, amount := w.r.IntN(6), w.r.Int64N(w.profile.Limits)
	var change wire.KeyChange
	var resized []*resize
	var locked rows
	if rows := w.pg.limitsOf(cust.name); len(rows) > 0 {
		locked = w.pg.windowsOf(rows[int(amount)%len(rows)].ID)
	}
	c.writeTx("adjust limits", locked, func(d *database) {
		resized = nil
		limits := d.limitsOf(cust.name)
		change = d.change(wire.AccountUpdated, cust.name, apikey.Hash{})
		switch {
		case what == 0 && len(limits) < 5:
			w.stats.count("limits added")
			w.addLimit(d, cust.name, projectsOf(cust.name)[amount%3])
		case len(limits) == 0:
		case what == 1:
			w.stats.count("limits removed")
			d.limits[limits[int(amount)%len(limits)].ID].removed = true
		case what == 2:
			w.stats.count("limits raised until a time")
			row := d.limits[limits[int(amount)%len(limits)].ID]
			row.raisedBy, row.raisedUntilMS = amount, w.wallMS()+200+amount%(1000*(w.profile.Windows-2))
			resized = w.resizeLimit(d, row, row.amount)
		default:
			w.stats.count("limits changed")
			resized = w.resizeLimit(d, d.limits[limits[int(amount)%len(limits)].ID], amount)
		}
	}, func(ok bool) {
		if ok {
			c.announce(change, func() {
				for _, r := range resized {
					r.at = w.now
				}
			})
		}
	})
}

// removeLimits removes all limits: the checks after it need all that accounts have.
func (w *world) removeLimits() {
	for _, cust := range w.customers {
		if len(w.pg.limitsOf(cust.name)) == 0 {
			continue
		}
		c := w.workingReplica()
		var change wire.KeyChange
		c.writeTx("remove limits", rows{}, func(d *database) {
			for _, row := range d.limits {
				row.removed = row.removed || row.account == cust.name
			}
			change = d.change(wire.AccountUpdated, cust.name, apikey.Hash{})
		}, func(ok bool) {
			if !ok {
				w.fail("liveness: the limits of %s cannot be removed after healing", cust.name)
			}
			c.announce(change, func() {})
		})
		w.runUntil(w.now + 2*window)
	}
}

// resizeLimit changes the amount of a limit, and the pools of its windows with it.
func (w *world) resizeLimit(d *database, row *limitRow, amount int64) (resized []*resize) {
	row.amount = amount
	for _, id := range sortedKeys(d.windowsOf(row.ID).pools) {
		p := d.pools[id]
		total, raisedBy, untilMS := row.amountAt(w.wallMS())
		w.oracle.taken[id] += max(p.Total-total, 0)
		p.Raise(total, raisedBy, untilMS)
		resized = append(resized, w.oracle.resized(id, total))
		w.raised(p)
		w.checkPool(p)
	}
	return resized
}

// raised tells the oracle from when on a raise of a window does not count any more: the clocks of proxies differ, and requests wait for
// their decisions.
func (w *world) raised(p *allocator.Pool) {
	if p.RaisedUntilMS != 0 {
		ends := time.Duration(p.RaisedUntilMS-begunMS) * time.Millisecond
		w.oracle.resized(p.ID, p.Total-p.RaisedBy).at = ends + maxWallOffset + 3*time.Second
	}
}

// endRaises ends the raises of windows whose time has come.
func (w *world) endRaises(pools map[wire.PoolID]*allocator.Pool) {
	for _, p := range pools {
		before := p.Total
		w.rules.Limits.EndRaise(p, w.wallMS())
		if p.Total != before {
			w.stats.count("raises that ended")
			w.oracle.taken[p.ID] += before - p.Total
		}
	}
}

// windowsOf returns the pools of the windows of a limit.
func (d *database) windowsOf(id int64) rows {
	r := rows{pools: map[wire.PoolID]bool{}}
	for pool := range d.pools {
		if of, _, ok := limit.OfPool(int64(pool)); ok && of == id {
			r.pools[pool] = true
		}
	}
	return r
}

// openWindows makes the windows that are needed and the ones that were lost, and returns the pools of those in which no request may
// count now, each with the right one.
func (w *world) openWindows(d *database, needed, reported []wire.PoolID) map[wire.PoolID]wire.PoolID {
	moved := map[wire.PoolID]wire.PoolID{}
	for _, pool := range reported {
		id, number, _ := limit.OfPool(int64(pool))
		if row := d.limits[id]; row != nil && d.pools[pool] == nil && d.now(w)-d.lostAt < time.Hour {
			if span, err := w.rules.Limits.Restore(row.series(), number, w.wallMS()); err == nil {
				w.makeWindow(d, row, span)
			}
		}
	}

	for _, pool := range needed {
		id, number, _ := limit.OfPool(int64(pool))
		row := d.limits[id]
		if row == nil {
			moved[pool] = 0
			continue
		}
		right, accepted, _ := w.rules.Limits.Check(row.series(), number, w.wallMS())
		if !accepted {
			w.stats.count("requests moved to another window")
			moved[pool] = wire.PoolID(limit.Pool(id, right.Number))
			continue
		}
		w.makeWindow(d, row, right)
	}
	return moved
}

// makeWindow makes the pool of a window, if there is none.
func (w *world) makeWindow(d *database, row *limitRow, span limit.Span) {
	pool := wire.PoolID(limit.Pool(row.ID, span.Number))
	known := d.pools[pool] != nil
	total, raisedBy, untilMS := row.amountAt(w.wallMS())
	w.rules.Limits.Make(d, &allocator.Pool{
		ID:            pool,
		Kind:          wire.Limit,
		Account:       row.account,
		Central:       true,
		Generation:    1,
		Total:         total,
		Free:          total,
		EndMS:         span.EndMS,
		RaisedBy:      raisedBy,
		RaisedUntilMS: untilMS,
	})
	if known {
		return
	}

	w.stats.count("windows of the period " + string(row.Window.Period))
	w.oracle.resized(pool, total).at = w.now
	w.raised(d.pools[pool])
	if row.Window.Period == limit.FirstUse {
		if span.StartMS < row.Newest.EndMS && !w.oracle.lost {
			w.fail("I11: window %+v of limit %d begins before %+v has ended", span, row.ID, row.Newest)
		}
		if span.Number > row.Newest.Number {
			row.Newest = span
		}
	}
}

// windowPools returns the pools among ids that are those of windows.
func windowPools(ids []wire.PoolID) []wire.PoolID {
	return slices.DeleteFunc(ids, func(id wire.PoolID) bool {
		_, _, ok := limit.OfPool(int64(id))
		return !ok
	})
}

// withWindows calls then with the pools of other windows, after the windows that a batch needs were made.
func (c *replica) withWindows(tx *allocator.Transaction, then func(moved map[wire.PoolID]wire.PoolID), failed func()) {
	var needed, reported []wire.PoolID
	for _, ret := range tx.Returns() {
		for _, v := range ret.Reports {
			reported = append(reported, v.Pool)
		}
	}
	for _, request := range tx.Requests() {
		for _, v := range request.Reports {
			reported = append(reported, v.Pool)
		}
		for _, needs := range request.Needs {
			for _, n := range needs {
				needed = append(needed, n.Pool)
			}
		}
	}
	c.openedWindows(windowPools(needed), windowPools(reported), then, failed)
}

func (c *replica) openedWindows(needed, reported []wire.PoolID, then func(moved map[wire.PoolID]wire.PoolID), failed func()) {
	if len(needed)+len(reported) == 0 {
		then(nil)
		return
	}
	var moved map[wire.PoolID]wire.PoolID
	c.tx("windows", func(d *database) { moved = c.w.openWindows(d, needed, reported) }, func(ok bool) {
		if !ok {
			failed()
			return
		}
		then(moved)
	})
}

// windowNeeds returns the needs of a request of the limits of its account.
func (p *proxy) windowNeeds(r *request) (needs []wire.Need) {
	r.windows, r.windowsAt = nil, p.w.now
	for i := range r.record.Limits {
		l := &r.record.Limits[i]
		span, err := p.windows.Current(l, p.wallMS())
		if err != nil {
			p.w.fail("limit %d has no window: %s", l.ID, err)
		}
		pool := wire.PoolID(limit.Pool(l.ID, span.Number))
		r.windows = append(r.windows, pool)
		needs = append(needs, wire.Need{Pool: pool, Kind: wire.Limit, Amount: r.amount})
	}
	return needs
}

// moved sends a request again that counts in another window, unless it was moved twice.
func (p *proxy) moved(r *request, d wire.Decision) bool {
	id, _, _ := limit.OfPool(int64(d.Pool))
	at := slices.IndexFunc(r.record.Limits, func(l limit.Limit) bool { return l.ID == id })
	if d.Reason != wire.WrongWindow || at < 0 || r.moves >= limit.MaxMoves(len(r.record.Limits)) {
		return false
	}
	r.moves++
	p.w.rules.Limits.Move(&p.windows, &r.record.Limits[at], int64(d.Pool), p.wallMS())
	p.after(0, func() { p.admit(r) })
	return true
}

// poolOfSession is a pool of which a session may hold units.
type poolOfSession struct {
	session wire.SessionID
	pool    wire.PoolID
}

// learnWindows learns when windows end, of the response to a lease request.
func (q *accountQueue) learnWindows(leases []wire.LeaseState) {
	for _, l := range leases {
		q.p.windows.Learn(int64(l.Pool), l.EndMS)
		if _, _, ok := limit.OfPool(int64(l.Pool)); !ok {
			continue
		}
		delete(q.until, l.Pool)
		q.p.w.oracle.idleUntil[poolOfSession{q.session, l.Pool}] = l.IdleUntil
		at := time.Duration(0)
		if l.IdleUntil != 0 {
			at = max(q.p.clock().Mono+time.Duration(l.IdleUntil-q.p.wallMS())*time.Millisecond, 1)
			q.until[l.Pool] = at
		}
		q.p.w.rules.Limits.UseUntil(q.queue, l.Pool, at)
	}
}

// checkWindows checks I11 when a request is admitted: each of its windows is current, but for the clocks and its wait.
func (w *world) checkWindows(r *request) {
	w.checkProject(r)
	const wait = maxWallOffset + tolerance + 3*time.Second
	for _, pool := range r.windows {
		p := w.pg.pools[pool]
		if p == nil || w.oracle.lost || p.EndMS == 0 {
			continue
		}
		if late := begunMS + r.windowsAt.Milliseconds() - p.EndMS; late > wait.Milliseconds() {
			w.fail("I11: %s admits in the window of pool %d %d ms after its end", r.p.name, pool, late)
		}
	}
}

// checkEndedWindows checks that a queue holds no idle units of windows that have ended.
func (q *accountQueue) checkEndedWindows(now time.Duration) {
	for pool, at := range q.until {
		if l := q.queue.LeaseView(pool); now > at && !q.resumed && l.Granted-l.Returned-l.Charged-l.Running > 0 {
			q.p.w.fail("liveness: %s keeps %+v of pool %d, whose window has ended", q.p.name, l, pool)
		}
	}
}

// nearTheEnd counts the requests that were settled and that could count in another window if the clock of their proxy were another one.
const nearTheEnd = "requests within two seconds of the end of a window"

// checkWindowCharges checks I11 at the end: each request counts in one window of each limit, and each window was charged with the
// requests that reserved units of it, and no others.
func (w *world) checkWindowCharges() {
	charged := map[wire.PoolID]int64{}
	for id, e := range w.oracle.events {
		settled, ok := w.pg.usage[id]
		if !ok {
			continue
		}
		limits, near := map[int64]bool{}, false
		for _, pool := range e.windows {
			of, _, _ := limit.OfPool(int64(pool))
			if limits[of] {
				w.fail("I11: a request counts in two windows of limit %d", of)
			}
			limits[of] = true
			charged[pool] += settled.cost
			if p := w.pg.pools[pool]; p != nil && p.EndMS != 0 {
				left := time.Duration(p.EndMS-begunMS)*time.Millisecond - e.windowsAt
				near = near || left.Abs() <= maxWallOffset
			}
		}
		if near {
			w.stats.count(nearTheEnd)
		}
	}
	for _, id := range sortedKeys(w.pg.pools) {
		if _, _, ok := limit.OfPool(int64(id)); ok && w.pg.pools[id].Settled != charged[id] {
			w.fail("I11: pool %d was charged %d, its requests cost %d", id, w.pg.pools[id].Settled, charged[id])
		}
	}
}

// limitMutations break the rules of limits.
func limitMutations() []Mutation {
	mutate := func(name string, budget uint64, apply func(r *LimitRules)) Mutation {
		return Mutation{name, budget, func(r *Rules) {
			r.Profile = windowsProfile
			apply(r.Limits)
		}}
	}
	return []Mutation{
		mutate("a request counts in the window in which it ends", 20, func(r *LimitRules) {
			r.Charged = func(r *request) []wire.PoolID {
				var pools []wire.PoolID
				for i := range r.record.Limits {
					span, _ := r.p.windows.Current(&r.record.Limits[i], r.p.wallMS())
					pools = append(pools, wire.PoolID(limit.Pool(r.record.Limits[i].ID, span.Number)))
				}
				return pools
			}
		}),
		mutate("a request that ends after its windows is not charged to them", 20, func(r *LimitRules) {
			r.Charged = func(r *request) (pools []wire.PoolID) {
				for _, pool := range r.windows {
					if p := r.p.w.pg.pools[pool]; p != nil && (p.EndMS == 0 || r.p.w.wallMS() < p.EndMS) {
						pools = append(pools, pool)
					}
				}
				return pools
			}
		}),
		mutate("the pool of a window is made again", 20, func(r *LimitRules) {
			r.Make = func(d *database, p *allocator.Pool) { d.pools[p.ID] = p }
		}),
		mutate("a window of the period first use is made whenever it is asked for", 20, func(r *LimitRules) {
			r.Check = func(s *limit.Series, number, nowMS int64) (limit.Span, bool, error) {
				if s.Window.Period == limit.FirstUse && number == s.Newest.Number+1 {
					return limit.Span{Number: number, StartMS: nowMS, EndMS: nowMS + s.Window.LengthSeconds*1000}, true, nil
				}
				return s.Check(number, nowMS)
			}
		}),
		mutate("every window is accepted for ever", 50, func(r *LimitRules) {
			r.Check = func(s *limit.Series, number, nowMS int64) (limit.Span, bool, error) {
				right, accepted, err := s.Check(number, nowMS)
				if !accepted && number > 0 && number < right.Number {
					return limit.Span{Number: number}, true, err
				}
				return right, accepted, err
			}
		}),
		mutate("idle units of windows that have ended are kept", 20, func(r *LimitRules) {
			r.UseUntil = func(*holder.Queue, wire.PoolID, time.Duration) {}
		}),
		mutate("a raise of a limit does not end", 100, func(r *LimitRules) {
			r.EndRaise = func(*allocator.Pool, int64) {}
		}),
		mutate("a proxy does not learn of the right window", 50, func(r *LimitRules) {
			r.Move = func(*limit.Windows, *limit.Limit, int64, int64) {}
		}),
		mutate("proxies are not told that a key has moved to another project", 50, func(r *LimitRules) {
			r.Tell = func(_ *replica, _ wire.KeyChange, confirmed func()) { confirmed() }
		}),
		mutate("proxies are not told that a key is paused", 50, func(r *LimitRules) {
			r.TellPause = func(_ *replica, _ wire.KeyChange, confirmed func()) { confirmed() }
		}),
		mutate("a request counts in the project that its key is in when it ends", 50, func(r *LimitRules) {
			r.Charged = func(r *request) (pools []wire.PoolID) {
				d := r.p.w.pg
				for _, l := range d.limitsFor(r.customer.name, d.projects[r.key.hash]) {
					span, _ := r.p.windows.Current(&l, r.p.wallMS())
					pools = append(pools, wire.PoolID(limit.Pool(l.ID, span.Number)))
				}
				return pools
			}
		}),
		mutate("a window that Postgres has lost is not made again", 4000, func(r *LimitRules) {
			r.Restore = func(*limit.Series, int64, int64) (limit.Span, error) { return limit.Span{}, errors.New("lost") }
		}),
	}
}

// windowsProfile has limits, and proxies whose clocks differ.
const windowsProfile = "windows"

// maxWallOffset is the greatest error of the wall clock of a proxy that no directed profile makes greater.
const maxWallOffset = 2 * time.Second
