package sim

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"time"

	"modelgateway/shared/apikey"
	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/lease/rollback"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

// Stats counts the events of one world, or of several.
type Stats struct {
	Steps, Requests, Admitted, Refused, Messages int64
	// Faults counts faults and other notable events by name.
	Faults map[string]int64
}

func (s *Stats) count(what string) { s.Faults[what]++ }

// Add adds the counts of another world.
func (s *Stats) Add(o Stats) {
	s.Steps += o.Steps
	s.Requests += o.Requests
	s.Admitted += o.Admitted
	s.Refused += o.Refused
	s.Messages += o.Messages
	if s.Faults == nil {
		s.Faults = map[string]int64{}
	}
	for what, n := range o.Faults {
		s.Faults[what] += n
	}
}

// Result is the result of running one seed.
type Result struct {
	Seed    uint64
	Profile Profile
	Stats   Stats
	// Violation is empty if every invariant held. Trace is empty unless Run was asked for it.
	Violation, Trace string
}

// Run runs the world of a seed under the given rules.
func Run(seed uint64, rules *Rules, trace bool) Result {
	if rules.Freshness != nil {
		return runFresh(seed, rules.Freshness, trace)
	}
	r := rand.New(rand.NewPCG(seed, 0x6d6777))
	profile := draw(r)
	profile.direct(r, rules.Profile)
	if rare := rand.New(rand.NewPCG(seed, 0x6c696d)); rare.IntN(3) == 0 && !rules.Limits.Never { // the other worlds are as without limits
		profile.LimitEvery = time.Second + time.Duration(rare.Int64N(int64(4*time.Second)))
		if rare.IntN(4) == 0 {
			profile.KeyEvery = profile.LimitEvery
		}
	}
	return play(seed, r, profile, rules, trace)
}

func play(seed uint64, r *rand.Rand, profile Profile, rules *Rules, trace bool) (result Result) {
	w := &world{
		profile: profile,
		rules:   rules,
		r:       r,
		stats:   Stats{Faults: map[string]int64{}},
		stream:  stream{taken: map[int]time.Duration{}},
		locks:   map[rollback.CommitMarker]*lock{},
	}
	w.bucket.revoked = map[apikey.Hash]recordedKey{}
	if trace {
		w.trace = &strings.Builder{}
	}

	result.Seed, result.Profile = seed, profile
	defer func() {
		w.stats.Steps = w.steps
		result.Stats = w.stats
		if w.trace != nil {
			result.Trace = w.trace.String()
		}
		switch v := recover().(type) {
		case nil:
		case violation:
			result.Violation = fmt.Sprintf("after %s: %s", w.now, string(v))
		default:
			panic(v)
		}
	}()

	w.build()
	w.runUntil(profile.Length)
	w.heal()
	return result
}

// build creates the processes and accounts of the world, and schedules requests,
// changes and faults.
func (w *world) build() {
	w.oracle = newOracle(w)
	w.pg = newDatabase(w.rules.Keys)
	w.pg.history = "first"
	w.pg.serverIncarnation = "0/first"
	f := w.profile
	customers := make([]*customer, f.Customers)
	w.customers = customers
	pool := wire.PoolID(0)
	add := func(account string, kind wire.PoolKind, total int64) wire.PoolID {
		pool++
		w.pg.pools[pool] = &allocator.Pool{
			ID:         pool,
			Kind:       kind,
			Account:    account,
			Central:    true,
			Generation: 1,
			Total:      total,
			Free:       total,
		}
		return pool
	}

	for i := range customers {
		money, slots := int64(200_000), 5+w.r.Int64N(120)
		if f.Poor {
			money, slots = w.r.Int64N(6000), 1+w.r.Int64N(6)
		}
		if f.TopUps {
			money = topUp
		}

		name := fmt.Sprint("account ", i)
		c := &customer{name: name, balance: add(name, wire.Balance, money), slots: add(name, wire.Slots, slots)}
		w.oracle.resized(c.slots, slots)

		for range f.Keys {
			k := w.newKey(w.pg, name)
			w.checkNewPools(k)
			c.keys = append(c.keys, k)
		}

		customers[i] = c
	}

	for i := range f.Replicas {
		w.newReplica(fmt.Sprint("controlplane ", i))
	}

	for i := range f.Proxies {
		w.newProxy(fmt.Sprint("proxy ", i))
	}

	some := func() *customer { return customers[w.r.IntN(len(customers))] }
	w.every(f.RequestEvery, func() { w.client(some()) })

	if f.TopUps {
		w.every(f.AdjustEvery, func() { w.topUp(some()) })
	} else {
		w.every(f.AdjustEvery, func() { w.adjust(some()) })
	}

	w.every(f.RevokeEvery, func() { c := some(); w.revoke(c, c.keys[w.r.IntN(len(c.keys))]) })
	if f.LimitEvery > 0 {
		w.buildLimits(customers, some)
	}
	w.every(f.SuspendEvery, func() { w.suspend(some(), w.r.IntN(2) == 0) })
	w.every(f.FaultEvery, w.breakSomething)
	w.watchOutages()

	if f.ForgeEvery > 0 {
		w.every(f.ForgeEvery, w.forge)
		w.every(f.ForgeEvery, w.impersonate)
		w.every(4*f.ForgeEvery, w.flood)
	}

	if f.LoseCommits > 0 {
		w.backUp()
		w.every(700*time.Millisecond, w.backUp)
	}
}

// client sends a few requests at once.
func (w *world) client(c *customer) {
	for range 1 + w.r.IntN(3) {
		amount := 1 + w.r.Int64N(300)
		cost := w.r.Int64N(amount + 1)
		if w.chance(w.profile.Overrun) {
			cost = amount + w.r.Int64N(amount+1)
		}

		r := &request{
			id:        w.newRequestID(),
			customer:  c,
			key:       c.keys[w.r.IntN(len(c.keys))],
			amount:    amount,
			cost:      cost,
			duration:  min(w.between(time.Millisecond, w.profile.RequestDuration*2), maxRequest-time.Second),
			needsSlot: w.r.IntN(8) > 0,
		}
		if w.profile.LongCalls > 0 && w.chance(w.profile.LongCalls) {
			r.duration = w.between(closeAfter, longestCall)
		}
		if n := len(w.retired); n > 0 && w.r.IntN(6) == 0 {
			old := w.retired[w.r.IntN(n)]
			r.customer, r.key = old.cust, old.key
		}

		w.proxies[w.r.IntN(len(w.proxies))].accept(r)
	}
}

// heal ends all faults, waits until all requests have ended, closes the sessions,
// and checks the final state.
func (w *world) heal() {
	w.healed = true
	w.pgDown, w.busDown, w.changes.down = false, false, false
	for _, p := range w.proxies {
		p.minority = false
	}

	for _, a := range w.actors() {
		a.deaf, a.mute = false, false
		a.resume()
	}

	w.log("all faults end")
	w.runUntil(w.now + maxRequest + window)
	if w.profile.LongCalls > 0 {
		w.runUntil(w.now + longestCall)
	}

	for _, c := range w.replicas {
		if !c.alive {
			c.start()
		}
	}

	for _, p := range w.proxies {
		if !p.alive {
			p.start()
		}
	}

	w.runUntil(w.now + 3*window + w.profile.IdleTimeout - idleTimeout)
	w.checkNothingHeld(session.Active)
	w.runUntil(w.now + closeAfter)
	w.checkNothingHeld(session.Active, session.Fenced)
	w.checkForgotten()
	w.probe()
	w.removeLimits()
	w.checkEscrowAgain()
	w.checkIdleIsShared()
	w.checkOutage()
	w.checkIdleInOutage()
	w.runUntil(w.now + 2*window)
	w.checkRevocationDelay()

	for _, p := range w.proxies {
		p.leave()
	}

	w.runUntil(w.now + window + closeAfter + 2*window)
	w.checkEnd()
}

func (w *world) actors() []*actor {
	var all []*actor
	for _, c := range w.replicas {
		all = append(all, &c.actor)
	}
	for _, p := range w.proxies {
		all = append(all, &p.actor)
	}
	return all
}

// probe sends more requests to the proxies. After all faults have ended, each
// request must be decided, even if messages were lost before.
func (w *world) probe() {
	before := maps.Clone(w.stats.Faults)
	for _, p := range w.proxies {
		if p.session == 0 || !p.valid(p.clock()) {
			w.fail("%s has no session after healing", p.name)
		}
	}

	asked := w.stats.Requests
	for range 3 {
		for _, c := range w.customers {
			w.client(c)
			w.runUntil(w.now + 300*time.Millisecond)
		}
	}

	w.runUntil(w.now + w.proxies[0].timing.DecisionTimeout + time.Second)
	if n := w.stats.Faults["requests without a decision"] - before["requests without a decision"]; n > 0 {
		w.fail("%d of %d requests have no decision after healing", n, w.stats.Requests-asked)
	}
}
