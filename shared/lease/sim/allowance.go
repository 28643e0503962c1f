package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/lease/holder"
	"modelgateway/shared/lease/outage"
	"modelgateway/shared/wire"
)

// allowanceProfiles have outages that are long enough to need the outage allowance,
// and shorter than a session. No world has one unless it is asked for.
var allowanceProfiles = []struct {
	name  string
	shape func(p *Profile, r *rand.Rand)
}{
	{"outage allowance", func(p *Profile, r *rand.Rand) { p.needAllowance(r) }},
	{"outage allowance and lost commits", func(p *Profile, r *rand.Rand) {
		p.needAllowance(r)
		p.LoseCommits, p.AnswerTime = 1, time.Duration(1+r.IntN(10))*time.Millisecond
	}},
	{"outage allowance and freshness", func(p *Profile, r *rand.Rand) {
		p.needFreshness(r, freshnessOnly)
		p.needAllowance(r)
		p.Outage, p.Length = 1, 30*time.Second
	}},
}

// someAllowance is the allowance of a quarter of all worlds.
var someAllowance = allocator.OutageAllowance{Percent: 10, Max: 1000, SlotsPercent: 20}

// needAllowance makes control planes be away often, for longer than a request waits.
func (p *Profile) needAllowance(r *rand.Rand) {
	p.Allowance = allocator.OutageAllowance{Percent: 1 + r.Int64N(60), Max: 1 + r.Int64N(4000), SlotsPercent: 1 + r.Int64N(100)}
	p.DecisionTimeout, p.Away, p.FaultEvery, p.LoseCommits = 1200*time.Millisecond, 4, 2*time.Second, 0
	p.RequestEvery, p.SuspendEvery, p.SpoolCapacity, p.Length = 25*time.Millisecond, 4*p.SuspendEvery, 400, max(p.Length, 12*time.Second)
	p.RequestDuration = min(p.RequestDuration, 500*time.Millisecond)
}

// decisionTimeout returns how long a request waits for a decision.
func (p *Profile) decisionTimeout() time.Duration {
	if p.DecisionTimeout > 0 {
		return p.DecisionTimeout
	}
	return holder.DefaultTiming(nil).DecisionTimeout
}

// away makes it impossible for a while that a control plane decides: without Postgres,
// without a bus, or because all replicas are stopped or killed.
func (w *world) away() {
	d := w.between(w.profile.decisionTimeout(), 2*sessionValid)
	kind := w.r.IntN(4)
	w.stats.count([]string{"Postgres away", "bus away", "replicas stopped", "replicas killed and not started"}[kind])
	w.log("no control plane decides for %s: %d", d, kind)
	if w.r.IntN(2) == 0 { // usage of the outage is settled late
		w.settlesFrom = w.now + d + w.between(0, 4*sessionValid)
	}
	switch kind {
	case 0:
		w.pgDown = true
		w.after(d, func() { w.pgDown = false })
	case 1:
		w.busDown = true
		w.after(d, func() { w.busDown = false })
	case 2:
		for _, c := range w.replicas {
			c.stop(d)
		}
	case 3:
		for _, c := range w.replicas {
			c.killFor(d)
		}
	}
}

// ended is a request that has ended and was admitted under the allowance.
type ended struct {
	id     [16]byte
	beyond []wire.Need
	cost   int64
}

// noteAllowances notes what a response allows the proxy.
func (p *proxy) noteAllowances(response *wire.LeaseResponse) {
	for _, l := range response.Leases {
		p.allowances[l.Pool] = l.Allowance
	}
}

// dropAllowances is called when a change may have reduced pools of an account.
func (p *proxy) dropAllowances(account string) {
	for pool := range p.allowances {
		if stored := p.w.pg.pools[pool]; stored != nil && stored.Account == account {
			delete(p.allowances, pool)
		}
	}
}

// recoverAllowance counts an event that an earlier process has left, or whose request
// it had not finished.
func (p *proxy) recoverAllowance(u *usage) {
	if len(u.beyond) == 0 {
		return
	}
	p.w.stats.count("requests under the outage allowance found after a restart")
	p.overdrawn = append(p.overdrawn, &ended{u.id, u.beyond, u.cost})
	p.w.rules.RecoverAllowance(p, u)
}

// noteSettled records that an event is settled. If its request was admitted under the
// allowance, that is given back.
func (p *proxy) noteSettled(u *usage) {
	if len(u.beyond) == 0 {
		return
	}
	p.allowance.Settled(u.beyond, u.cost)
	p.overdrawn = slices.DeleteFunc(p.overdrawn, func(e *ended) bool { return e.id == u.id })
}

// overdraws returns what a proxy uses of the allowance of a pool: what running
// requests need, and the costs of ended ones that are not settled.
func (p *proxy) overdraws(pool wire.PoolID) (sum int64) {
	for _, r := range p.running {
		for _, n := range r.waiter.Beyond() {
			if n.Pool == pool && !r.lost {
				sum += n.Amount
			}
		}
	}
	for _, e := range p.overdrawn {
		for _, n := range e.beyond {
			if n.Pool == pool && n.Kind != wire.Slots && !p.w.settledNow(e.id) {
				sum += e.cost
			}
		}
	}
	return sum
}

// beyond returns what the running requests of a queue have of a pool under the outage
// allowance.
func (q *accountQueue) beyond(pool wire.PoolID) (sum int64) {
	for _, r := range q.p.running {
		for _, n := range r.waiter.Beyond() {
			if n.Pool == pool && r.queue == q {
				sum += n.Amount
			}
		}
	}
	return sum
}

// checkAllowance checks a request that is granted under the outage allowance: no
// control plane has decided anything for its proxy, and the proxy has used no more
// than a control plane allowed.
func (w *world) checkAllowance(r *request) {
	p, now := r.p, r.p.clock().Mono
	if !r.waiter.UnderAllowance() {
		return
	}
	w.stats.count("requests granted under the outage allowance")
	if since := now - p.decidedAt; since < w.profile.decisionTimeout() {
		w.fail("%s uses the outage allowance %s after a control plane has decided something", p.name, since)
	}
	if w.healed && w.now-w.brokenAt > w.profile.decisionTimeout()+time.Second {
		w.fail("%s uses the outage allowance although everything has worked for %s", p.name, w.now-w.brokenAt)
	}
	for _, n := range r.waiter.Beyond() {
		if used := p.overdraws(n.Pool); used > p.allowances[n.Pool] {
			w.fail("%s uses %d of pool %d under the outage allowance, which is %d", p.name, used, n.Pool, p.allowances[n.Pool])
		}
	}
}

// checkAllowances checks the allowances in a response.
func (w *world) checkAllowances(batch *allocator.Batch, response *wire.LeaseResponse) {
	o := w.profile.Allowance
	for _, l := range response.Leases {
		p, live := batch.Allocator.Pools[l.Pool], max(batch.LiveProxies, 1)
		most, share := max(p.Free, 0), o.Percent
		if p.Kind == wire.Slots {
			share = o.SlotsPercent
		}
		switch {
		case l.Allowance > most, p.Kind != wire.Slots && (l.Allowance > o.Max || 100*live*l.Allowance > share*most),
			p.Kind == wire.Slots && 100*live*(l.Allowance-1) >= share*p.Total:
			w.fail("%d live proxies are each allowed %d of %+v in an outage", live, l.Allowance, *p)
		}
	}
}

// watchFaults keeps brokenAt up to date after the world has healed.
func (w *world) watchFaults() {
	broken := w.pgDown || w.busDown || w.changes.down
	for _, a := range w.actors() {
		broken = broken || !a.alive || a.halted > w.now || a.deaf || a.mute
	}
	if broken || !w.healed {
		w.brokenAt = w.now
	}
	w.after(outageSample, w.watchFaults)
}

// checkAllowanceServes checks that requests are admitted under the outage allowance
// when no control plane is reached, and that none is refused.
func (w *world) checkAllowanceServes() {
	if w.profile.Allowance == (allocator.OutageAllowance{}) {
		return
	}
	const need = 5
	w.runUntil(w.now + time.Second)
	wait := w.profile.decisionTimeout()
	var asked []*request
	served := 0
	for _, p := range w.proxies {
		for _, c := range w.customers {
			if k := w.unlimitedKey(p, c); k != nil { // its response has the allowances
				p.accept(&request{id: w.newRequestID(), customer: c, key: k, amount: need, cost: 1, duration: 5 * time.Millisecond, needsSlot: true})
				w.runUntil(w.now + 100*time.Millisecond) // several at once may need a recall
			}
		}
	}
	before := w.stats.Refused
	for _, c := range w.replicas {
		c.stop(wait + wait/5)
	}
	w.runUntil(w.now + 5*time.Millisecond) // what is on its way arrives
	for _, p := range w.proxies {
		for _, c := range w.customers {
			k, q := w.unlimitedKey(p, c), p.queues[c.name]
			if k == nil || q == nil || !p.valid(p.clock().Add(wait*11/10)) || p.usedCapacity()+2 >= w.profile.SpoolCapacity*9/10 ||
				p.allowances[c.balance]-p.overdraws(c.balance) < need || p.allowances[c.slots]-p.overdraws(c.slots) < 1 {
				continue
			}
			w.stats.count("accounts that need the outage allowance")
			r := &request{id: w.newRequestID(), customer: c, key: k, amount: need, cost: 1, duration: 5 * time.Millisecond, needsSlot: true}
			r.admitted = func() { served++ }
			asked = append(asked, r)
			p.accept(r)
		}
	}
	w.runUntil(w.now + wait + wait/10)
	if served < len(asked) || w.stats.Refused > before {
		w.fail("liveness: %d of %d requests are served for which the outage allowance has room, and %d refused", served, len(asked), w.stats.Refused-before)
	}
	w.runUntil(w.now + 3*time.Second)
}

// allowanceMutations use the outage allowance wrongly.
func allowanceMutations() []Mutation {
	const profile = "outage allowance"
	respond := func(r *Rules, change func(l *wire.LeaseState)) {
		r.Profile = profile
		r.HandleResponse = func(q *holder.Queue, now, sentAt time.Duration, request *wire.LeaseRequest, a *wire.LeaseResponse) bool {
			for i := range a.Leases {
				change(&a.Leases[i])
			}
			return q.HandleResponse(now, sentAt, request, a)
		}
	}
	return []Mutation{
		{"the outage allowance is used while a control plane decides", 60, func(r *Rules) {
			r.Profile = profile
			r.AllowanceAfter = func(Profile) time.Duration { return 0 }
		}},
		{"the costs of ended requests are not counted in the outage allowance", 60, func(r *Rules) {
			r.Profile = profile
			r.Release = func(q *accountQueue, t *holder.Waiter, cost int64) {
				q.queue.Release(t, cost)
				q.p.allowance.Settled(t.Beyond(), cost)
			}
		}},
		{"a new session has the whole outage allowance again", 600, func(r *Rules) {
			r.Profile = profile
			r.AllowanceUse = func(*proxy) *outage.AllowanceUse { return &outage.AllowanceUse{} }
		}},
		{"a restart gives the outage allowance back", 600, func(r *Rules) {
			r.Profile = profile
			r.RecoverAllowance = func(_ *proxy, u *usage) { u.beyond = nil }
		}},
		{"a proxy uses more than the outage allowance", 60, func(r *Rules) {
			respond(r, func(l *wire.LeaseState) { l.Allowance *= 2 })
		}},
		{"the outage allowance is never used", 60, func(r *Rules) {
			respond(r, func(l *wire.LeaseState) { l.Allowance = 0 })
		}},
		{"the outage allowance of before a change of the account is used", 90, func(r *Rules) {
			r.Profile = profile
			r.MayReduce = func(*wire.KeyChange) bool { return false }
		}},
		{"each proxy is allowed the share of all", 60, func(r *Rules) {
			r.Profile = profile
			r.Policy = func(b *allocator.Batch, _ *wire.LeaseRequest, apply func(*allocator.Batch)) {
				apply(b)
				b.Allowance.Percent *= max(b.LiveProxies, 2)
			}
		}},
	}
}
