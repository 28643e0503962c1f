package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"modelgateway/shared/lease/session"
)

// The times of worlds of freshness.
const (
	beatEvery = window / 4
	readEvery = 40 * time.Millisecond
)

// FreshRules are the steps of freshness. The correct ones call shared/lease/session.
type FreshRules struct {
	Fresh    func(f *session.Freshness, now session.Instant) bool
	ReadBack func(f *session.Freshness, now session.Instant, incarnation string, b session.Beat, sequence uint64) bool
	Resynced func(f *session.Freshness, now, askedAt session.Instant)
	Due      func(c *session.Confirmation, now session.Instant) bool
	Verified func(c *session.Confirmation, found session.Place)
	// SentAt returns the time from which a beat counts.
	SentAt func(now session.Instant) session.Instant
	// ReadsAgain means that a proxy reads what lies between its beats when it has read the second.
	ReadsAgain bool
	// ReadsOwn means that a beat counts when it was read, and not when it was acknowledged.
	ReadsOwn bool
	// ChecksPrevious means that the stream stores a beat only behind the one that it names.
	ChecksPrevious bool
	// TakesIn means that control planes write revocations to Postgres that operators have appended.
	TakesIn bool
	// ConfirmsEnds means that the units of a session are free only when the end of the session is confirmed.
	ConfirmsEnds bool
	// ConfirmsEpochs means that the recovery wait ends only when the new epoch is confirmed.
	ConfirmsEpochs bool
	// FromStart means that a new process reads the stream from its start.
	FromStart bool
}

// correctFresh returns the rules of shared/lease/session.
func correctFresh() *FreshRules {
	return &FreshRules{
		Fresh:          (*session.Freshness).Fresh,
		ReadBack:       (*session.Freshness).ReadBack,
		Resynced:       (*session.Freshness).Resynced,
		Due:            (*session.Confirmation).Due,
		Verified:       (*session.Confirmation).Verified,
		SentAt:         func(now session.Instant) session.Instant { return now },
		ReadsAgain:     true,
		ReadsOwn:       true,
		ChecksPrevious: true,
		TakesIn:        true,
		FromStart:      true,
		ConfirmsEnds:   true,
		ConfirmsEpochs: true,
	}
}

// freshWorld is a world that has only keys, revocations, and the stream of
// changes.
type freshWorld struct {
	*world
	rules *FreshRules
	// bus stands for the servers of the stream; down means that they have no quorum.
	bus      actor
	down     bool
	messages []freshMessage
	// incarnation counts the creations of the stream, ids the messages.
	incarnation, ids int
	planes           []*freshPlane
	proxies          []*freshProxy
	// revoked are the revocations in Postgres; asked are the keys whose revocation was requested, confirmed those for which
	// it was reported effective.
	revoked, asked, confirmed map[int]bool
	// sessions counts the sessions. The end of one is a change like the revocation of a key; its number follows firstSession.
	sessions    int
	keysRevoked int
	// lossless means that nothing fails but the control planes and Postgres.
	lossless bool
	outage   time.Duration
}

// freshMessage is a message of the stream: a beat, or the revocation of a key.
type freshMessage struct {
	id     string
	boot   string
	beat   session.Beat
	key    int
	direct bool
}

// stored is a message with its sequence number, read from an incarnation.
type stored struct {
	freshMessage
	incarnation string
	sequence    uint64
}

// freshness is the name of the profile whose worlds have only keys and the stream.
const freshness = "freshness"

// runFresh runs the world of a seed.
func runFresh(seed uint64, rules *FreshRules, trace bool) (result Result) {
	r := rand.New(rand.NewPCG(seed, 0x66726573))
	base := &world{
		profile: draw(r),
		rules:   Correct(),
		r:       r,
		stats:   Stats{Faults: map[string]int64{}},
	}
	base.profile.Name, base.profile.Length = freshness, base.between(10*window, 20*window)
	w := &freshWorld{
		world:     base,
		rules:     rules,
		revoked:   map[int]bool{},
		asked:     map[int]bool{},
		confirmed: map[int]bool{},
		lossless:  r.IntN(5) == 0,
	}
	if w.lossless {
		base.profile.LoseMessage, base.profile.DelayMessage = 0, 0
	}
	if trace {
		w.trace = &strings.Builder{}
	}

	result.Seed, result.Profile = seed, base.profile
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
	w.runUntil(base.profile.Length)
	w.heal()
	return result
}

func (w *freshWorld) newActor(name string) actor {
	return actor{
		w:      w.world,
		name:   name,
		alive:  true,
		rate:   1 + 0.04*(w.r.Float64()-0.5),
		offset: w.between(0, time.Hour),
	}
}

const (
	freshKeys    = 12
	firstSession = 1_000_000
)

func (w *freshWorld) build() {
	w.bus = w.newActor("bus")
	w.bus.rate = 1
	for i := range 1 + w.r.IntN(2) {
		c := &freshPlane{actor: w.newActor(fmt.Sprint("control plane ", i)), world: w}
		w.planes = append(w.planes, c)
		c.start()
	}

	for i := range 1 + w.r.IntN(4) {
		p := &freshProxy{actor: w.newActor(fmt.Sprint("proxy ", i)), world: w}
		w.proxies = append(w.proxies, p)
		p.start()
	}

	w.every(15*time.Millisecond, func() {
		p, lapsed := w.proxies[w.r.IntN(len(w.proxies))], false
		for key := range freshKeys + w.keysRevoked { // keys are numbered from 0; a revoked one has a successor
			lapsed = lapsed || p.accept(key)
		}
		if lapsed && w.lossless && w.now > 2*window {
			w.fail("liveness: %s is not fresh although only control planes and Postgres fail", p.name)
		}
	})

	w.every(w.between(300*time.Millisecond, 2*window), func() {
		key := w.r.IntN(freshKeys + w.keysRevoked)
		if w.r.IntN(3) == 0 {
			w.revokeDirectly(key)
		} else {
			w.revoke(key)
		}
	})

	w.every(max(w.profile.FaultEvery/2, 300*time.Millisecond), w.breakStream)
	w.every(4*window, w.leaveAlone)
	w.every(2*window, w.endSession)
}

// endSession ends the session of a proxy, for whatever reason, so that others may
// spend its units when the end is confirmed.
func (w *freshWorld) endSession() {
	p := w.proxies[w.r.IntN(len(w.proxies))]
	if w.lossless || w.pgDown || w.planes[0].halted > w.now || w.asked[p.session] {
		return
	}
	w.stats.count("sessions ended")
	w.log("session %d of %s ends", p.session, p.name)
	w.asked[p.session], w.revoked[p.session] = true, true
	if !w.rules.ConfirmsEnds {
		w.confirmed[p.session] = true
	}
}

// leaveAlone stops Postgres, or every control plane, for many windows.
func (w *freshWorld) leaveAlone() {
	d := w.between(window/2, 8*window)
	if w.now < max(w.outage, 2*window) || w.now+d > w.profile.Length { // proxies need Postgres once
		return
	}

	w.outage = w.now + d
	w.log("nobody is there to serve proxies for %s", d)

	if w.r.IntN(2) == 0 {
		w.stats.count("Postgres away")
		w.pgDown = true
		w.after(d, func() { w.pgDown = false })
		return
	}

	w.stats.count("control planes away")
	for _, c := range w.planes {
		c.stop(d)
	}
}

// breakStream causes one fault of the stream, or of a proxy.
func (w *freshWorld) breakStream() {
	p := w.proxies[w.r.IntN(len(w.proxies))]
	if w.lossless {
		return
	}

	d := w.between(50*time.Millisecond, 2*window)
	switch w.r.IntN(9) {
	case 0:
		w.stats.count("no quorum")
		w.down = true
		w.after(d, func() { w.down = false })
	case 1:
		w.stats.count("proxies on the minority")
		p.minority, p.seen = true, len(w.messages)
		w.after(d, func() { p.minority = false })
	case 2:
		w.stats.count("proxies on a server with an old store")
		p.minority, p.seen = true, len(w.messages)/2
		w.after(d, func() { p.minority = false })
	case 3:
		w.loseMessages(1 + w.r.IntN(1+len(w.messages)/3))
	case 4:
		w.stats.count("streams created again")
		w.log("the stream is created again")
		w.messages, w.incarnation = nil, w.incarnation+1
		w.forgetLost()
	case 5:
		w.stats.count("proxies killed")
		w.log("%s is started again", p.name)
		p.start()
	case 6:
		p.deaf, p.mute = w.r.IntN(2) == 0, true
		w.stats.count("processes cut off")
		w.after(d, func() { p.deaf, p.mute = false, false })
	case 7:
		p.stop(d)
		w.stats.count("processes stopped")
	default:
		p.suspend(d)
		w.stats.count("machines suspended")
	}
}

// loseMessages loses the last messages of the stream, which were acknowledged.
func (w *freshWorld) loseMessages(n int) {
	if n = min(n, len(w.messages)); n == 0 {
		return
	}
	w.stats.count("acknowledged messages lost")
	w.log("the stream loses its messages from %d on", len(w.messages)-n+1)
	w.messages = slices.Clone(w.messages[:len(w.messages)-n])
	w.forgetLost()
}

// forgetLost excuses the direct revocations of which no copy is left.
func (w *freshWorld) forgetLost() {
	for key := range w.confirmed {
		if !w.revoked[key] && !slices.ContainsFunc(w.messages, func(m freshMessage) bool { return m.boot == "" && m.key == key }) {
			w.stats.count("direct revocations lost with the stream")
			delete(w.confirmed, key)
		}
	}
}

func (w *freshWorld) read(from, to int) (found []stored) {
	for i := from; i < min(to, len(w.messages)); i++ {
		found = append(found, stored{w.messages[i], incarnation(int64(w.incarnation)), uint64(i + 1)})
	}
	return found
}

// append appends a message to the stream. The acknowledgement may be lost although
// it is stored.
func (w *freshWorld) append(from *actor, minority func() bool, m freshMessage, acknowledged func(session.Place)) {
	w.carry(from, &w.bus, "a message to the stream", func() {
		if w.down || minority() || !w.mayStore(m) {
			return
		}
		w.messages = append(w.messages, m)
		at := session.Place{Incarnation: incarnation(int64(w.incarnation)), Sequence: uint64(len(w.messages)), ID: m.id}
		w.carry(&w.bus, from, "acknowledgement", func() { acknowledged(at) })
	})
}

// mayStore reports whether the beat before is the last one of the process.
func (w *freshWorld) mayStore(m freshMessage) bool {
	if m.boot == "" || m.beat.Previous == 0 || !w.rules.ChecksPrevious {
		return true
	}
	for i, each := range slices.Backward(w.messages) {
		if each.boot == m.boot {
			return uint64(i+1) == m.beat.Previous
		}
	}
	return false
}

func (w *freshWorld) newID() string {
	w.ids++
	return fmt.Sprint("message ", w.ids)
}

// revoke revokes a key in Postgres. The control planes append and confirm it.
func (w *freshWorld) revoke(key int) {
	if w.pgDown || w.asked[key] || w.planes[0].halted > w.now {
		return
	}
	w.stats.count("revocations")
	w.log("key %d is revoked in Postgres", key)
	w.asked[key], w.revoked[key] = true, true
	w.keysRevoked++
}

// revokeDirectly appends a revocation with the credentials of an operator.
func (w *freshWorld) revokeDirectly(key int) {
	if w.asked[key] {
		return
	}

	w.asked[key] = true
	w.keysRevoked++
	w.stats.count("direct revocations")
	operator := w.newActor("operator")
	c := session.NewConfirmation(session.Lasts(window))
	var round func()
	round = func() {
		if w.confirm(&operator, c, key, true) {
			w.stats.count("direct revocations confirmed")
		} else {
			operator.after(200*time.Millisecond, round)
		}
	}
	round()
}

// confirm takes the next step of a confirmation, and reports whether it is done.
func (w *freshWorld) confirm(from *actor, c *session.Confirmation, key int, direct bool) bool {
	switch {
	case c.Done():
		return true
	case c.Append():
		w.append(from, func() bool { return false }, freshMessage{id: w.newID(), key: key, direct: direct}, func(at session.Place) {
			if c.Append() {
				w.log("the revocation of key %d is at %d", key, at.Sequence)
				c.Appended(from.clock(), at)
			}
		})
	case w.rules.Due(c, from.clock()):
		if w.down || from.deaf || from.mute {
			return false
		}
		found, at := session.Place{}, c.Place()
		if at.Incarnation == incarnation(int64(w.incarnation)) && at.Sequence <= uint64(len(w.messages)) {
			found = session.Place{Incarnation: at.Incarnation, Sequence: at.Sequence, ID: w.messages[at.Sequence-1].id}
		}
		w.rules.Verified(c, found)
		if c.Done() {
			w.log("the revocation of key %d is confirmed", key)
			w.confirmed[key] = true
			return true
		}
		w.stats.count("changes appended again")
	}
	return false
}

// freshPlane is a control plane.
type freshPlane struct {
	actor
	world         *freshWorld
	confirmations map[int]*session.Confirmation
}

func (c *freshPlane) start() {
	c.confirmations = map[int]*session.Confirmation{}
	var round func()
	round = func() {
		c.round()
		c.after(c.w.between(100*time.Millisecond, 300*time.Millisecond), round)
	}
	round()
}

// round takes in direct revocations, and confirms the changes in Postgres.
func (c *freshPlane) round() {
	w := c.world
	if w.pgDown {
		return
	}
	for _, m := range w.messages {
		if m.direct && w.rules.TakesIn && !w.down {
			w.revoked[m.key] = true
		}
	}
	for _, key := range sortedKeys(w.revoked) {
		if c.confirmations[key] == nil {
			c.confirmations[key] = session.NewConfirmation(session.Lasts(window))
		}
		w.confirm(&c.actor, c.confirmations[key], key, false)
	}
}

// serve calls do with the state of Postgres, if it can be reached.
func (c *freshPlane) serve(do func()) {
	if !c.w.pgDown {
		do()
	}
}

// heal ends all faults. Then every proxy must become fresh, and every revocation
// must be confirmed.
func (w *freshWorld) heal() {
	w.healed, w.pgDown, w.down = true, false, false
	for _, p := range w.proxies {
		p.deaf, p.mute, p.minority = false, false, false
		p.resume()
	}

	for _, c := range w.planes {
		c.resume()
	}

	w.log("all faults end")
	w.runUntil(w.now + 6*window)

	for _, p := range w.proxies {
		if !w.rules.Fresh(p.fresh, p.clock()) {
			w.fail("liveness: %s is not fresh after healing", p.name)
		}
		for _, key := range sortedKeys(w.asked) {
			switch {
			case !w.confirmed[key] && w.revoked[key]:
				w.fail("liveness: the revocation of key %d is not confirmed after healing", key)
			case w.confirmed[key] && !w.revoked[key]:
				w.fail("liveness: the direct revocation of key %d is not in Postgres after healing", key)
			}
			p.accept(key)
		}
	}
}
