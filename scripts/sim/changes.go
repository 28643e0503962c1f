package sim

import (
	"fmt"
	"slices"
	"time"

	"modelgateway/shared/apikey"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

// changeStream is the modelled stream of changes. It keeps the last message of
// each subject.
type changeStream struct {
	messages []changeMessage
	// incarnation counts the creations of the stream, ids the messages.
	incarnation, ids int
	// down means that its servers have no quorum.
	down bool
}

// changeMessage is a message of the stream: a beat, a change of a key or an
// account, the end of a session, or a cluster epoch.
type changeMessage struct {
	subject, id string
	// at is when it was stored.
	at time.Duration
	// source is the random id of the session that sent beat.
	source string
	beat   session.Beat
	change wire.KeyChange
	ended  wire.SessionID
	epoch  int64
	// replaced means that there is a later message of its subject.
	replaced bool
}

func (s *changeStream) name() string { return incarnation(int64(s.incarnation)) }

// last returns the last message of a subject and its sequence number; zero if there is none.
func (s *changeStream) last(subject string) (m changeMessage, sequence uint64) {
	for i, each := range slices.Backward(s.messages) {
		if each.subject == subject && !each.replaced {
			return each, uint64(i + 1)
		}
	}
	return changeMessage{}, 0
}

func (s *changeStream) place(sequence uint64) session.Place {
	if sequence == 0 || sequence > uint64(len(s.messages)) || s.messages[sequence-1].replaced {
		return session.Place{}
	}
	return session.Place{Incarnation: s.name(), Sequence: sequence, ID: s.messages[sequence-1].id}
}

// between returns the changes behind a sequence number, up to another one.
func (s *changeStream) between(after, until uint64) (found []changeMessage) {
	for i := after; i < min(until, uint64(len(s.messages))); i++ {
		if m := s.messages[i]; !m.replaced && m.source == "" {
			found = append(found, m)
		}
	}
	return found
}

// store stores a message, which replaces the last one of its subject, and repeats
// a change to all proxies.
func (w *world) store(m changeMessage) session.Place {
	s := &w.changes
	if _, old := s.last(m.subject); old > 0 {
		s.messages[old-1].replaced = true
	}

	s.ids++
	m.id, m.at = fmt.Sprint("message ", s.ids), w.now
	s.messages = append(s.messages, m)
	if m.source == "" {
		w.log("the stream has %s at %d", m.subject, len(s.messages))
		for _, p := range w.proxies {
			if !w.pushesCut && !p.minority && (p.pushesLostUntil <= w.now || w.healed) {
				w.carryFromBus(&p.actor, func() { p.streamed(m) })
			}
		}
	}

	return s.place(uint64(len(s.messages)))
}

// loseChanges loses the last messages of the stream of changes, which were
// acknowledged.
func (w *world) loseChanges() {
	s := &w.changes
	n := w.r.IntN(1 + len(s.messages)/3)
	if n == 0 {
		return
	}
	w.stats.count("acknowledged changes lost")
	w.log("the stream of changes loses its messages from %d on", len(s.messages)-n+1)
	s.messages = slices.Clone(s.messages[:len(s.messages)-n])
	clear(w.oracle.bounds) // they rely on what the stream has acknowledged
}

// createChangesAgain loses the stream of changes; a control plane creates it again.
func (w *world) createChangesAgain() {
	w.stats.count("streams of changes created again")
	w.log("the stream of changes is created again")
	w.changes.messages, w.changes.incarnation = nil, w.changes.incarnation+1
	clear(w.oracle.bounds)
}

// separate connects a proxy to a server that cannot reach the others of the stream.
func (w *world) separate(p *proxy) {
	w.stats.count("proxies on the minority")
	w.log("%s is on the minority", p.name)
	p.minority = true
	w.after(w.between(100*time.Millisecond, 2*window), func() { p.minority = false })
}

// askChanges sends a request to the stream, which calls do, and calls then with
// its result. ok is false if there was no answer in time.
func askChanges[A any](from *actor, cut func() bool, do func(s *changeStream) A, then func(a A, ok bool)) {
	w, over := from.w, false
	w.carryToBus(from, func() {
		if w.changes.down || cut() {
			return
		}
		a := do(&w.changes)
		w.carryFromBus(from, func() {
			if !over {
				over = true
				then(a, true)
			}
		})
	})

	from.after(callTimeout, func() {
		if !over {
			over = true
			var none A
			then(none, false)
		}
	})
}

// connected is the cut of a process that can reach the stream.
func connected() bool { return false }

// proxyFreshness is the freshness of a proxy's session.
type proxyFreshness struct {
	*session.Freshness
	source   string
	number   int64
	sequence uint64
	// sentAt has when each beat was sent, and provenAt is that time of the last one that was read, for the oracle.
	sentAt   map[int64]time.Duration
	provenAt time.Duration
	// resumed means that the session is that of an earlier process, and that this one has not read the stream yet.
	resumed bool
	// last is the sequence number of the last beat that the earlier process has read.
	last uint64
}

// beginFresh begins the freshness of a session that has begun.
func (p *proxy) beginFresh(id wire.SessionID) {
	p.fresh = &proxyFreshness{
		Freshness: session.NewFreshness(window),
		source:    fmt.Sprintf("%s, session %d", p.boot, id),
		sentAt:    map[int64]time.Duration{},
		provenAt:  -time.Hour,
	}
}

// valid reports whether the session is valid at a time.
func (p *proxy) valid(now session.Instant) bool {
	return p.session != 0 && p.w.rules.Changes.Fresh(p.fresh.Freshness, now)
}

// beat sends a beat in the stream of changes, and reads it.
func (p *proxy) beat() {
	w, f, began := p.w, p.fresh, p.clock().Mono
	again := func(ok bool) {
		pause := window/4 - (p.clock().Mono - began)
		if !ok {
			pause = window / 40
		}
		p.after(pause, p.beat)
	}
	if f == nil {
		again(false)
		return
	}

	b := f.Beat(w.rules.Changes.SentAt(p.clock()))
	f.sentAt[b.Number] = w.now
	m := changeMessage{subject: "beat of " + p.name, source: f.source, beat: b}
	askChanges(&p.actor, func() bool { return p.minority }, func(s *changeStream) bool {
		if _, last := s.last(m.subject); b.Previous != 0 && last != b.Previous && w.rules.Changes.ChecksPrevious {
			return false
		}
		w.store(m)
		return true
	}, func(stored, answered bool) {
		if answered && stored && !w.rules.Changes.ReadsOwn {
			p.read(f, beatRead{message: m, incarnation: w.changes.name()}, false)
			again(true)
			return
		}
		p.readBack(f, m.subject, answered && !stored, again)
	})
}

// beatRead is the last beat of a proxy, with the changes between the one
// before and this one.
type beatRead struct {
	message     changeMessage
	sequence    uint64
	incarnation string
	changes     []changeMessage
}

// readBack reads the last beat, which may be stored although its
// acknowledgement was lost.
func (p *proxy) readBack(f *proxyFreshness, subject string, refused bool, then func(ok bool)) {
	askChanges(&p.actor, func() bool { return p.minority }, func(s *changeStream) beatRead {
		m, sequence := s.last(subject)
		read := beatRead{message: m, sequence: sequence, incarnation: s.name()}
		switch {
		case f.resumed:
			read.changes = s.between(f.last, sequence)
		case m.beat.Previous > 0:
			read.changes = s.between(m.beat.Previous, sequence)
		}
		return read
	}, func(read beatRead, ok bool) {
		if ok && p.fresh == f {
			ok = p.read(f, read, refused)
		}
		then(ok)
	})
}

// read handles the last beat of the proxy. It reports whether it is a new one
// of the session.
func (p *proxy) read(f *proxyFreshness, read beatRead, refused bool) bool {
	w := p.w
	if b := read.message.beat; read.message.source != f.source || b.Number <= f.number {
		if refused && read.sequence != f.sequence {
			w.stats.count("beats refused")
			f.Reset()
			f.sequence = 0
		}
		return false
	}

	if w.rules.Changes.ReadsAgain {
		for _, m := range read.changes {
			p.applyStreamed(m)
		}
	}

	if p.fresh != f {
		return false // the session has ended
	}

	b := read.message.beat
	if !w.rules.Changes.ReadBack(f.Freshness, p.clock(), read.incarnation, b, read.sequence) {
		w.log("%s: the stream of changes has lost messages", p.name)
		f.Reset()
		f.sequence = 0
		return false
	}

	f.resumed = false
	f.number, f.sequence, f.provenAt = b.Number, read.sequence, max(f.provenAt, f.sentAt[b.Number])
	if f.Reads(p.clock()) && !f.Fresh(p.clock()) {
		p.client.HeartbeatNow() // the response ends the lapse
		p.pump()
	}

	p.saveCheckpoint()
	return true
}

// streamed handles a change that the stream has stored.
func (p *proxy) streamed(m changeMessage) {
	if p.fresh != nil {
		p.applyStreamed(m)
	}
}

// applyStreamed applies a message of the stream of changes.
func (p *proxy) applyStreamed(m changeMessage) {
	switch {
	case m.ended != 0:
		p.client.HandleEnded(p.clock(), m.ended)
	case m.epoch != 0:
		p.client.HandleEpoch(p.clock(), m.epoch)
	case m.change.Revision > p.client.Applied():
		p.applyChange(m.change)
		if p.isResumed && m.change.MayReduce() {
			delete(p.idle, m.change.Account)
		}
		return
	default:
		return
	}
	p.pump()
}

// resynced records that the proxy has applied the changes that Postgres had when it was
// asked at sentAt.
func (p *proxy) resynced(sentAt session.Instant, synced bool) {
	if p.fresh != nil && p.session != 0 && synced {
		p.history.Synced(p.client.Applied())
		p.w.rules.Changes.Resynced(p.fresh.Freshness, p.clock(), sentAt)
	}
}

// confirming is what a replica confirms by the stream of changes: a change, the end
// of a session, or an epoch.
type confirming struct {
	change wire.KeyChange
	ended  wire.SessionID
	epoch  int64
}

func (m confirming) subject() string {
	switch {
	case m.ended != 0:
		return fmt.Sprint("end of session ", m.ended)
	case m.epoch != 0:
		return "epoch"
	case m.change.Kind == wire.AccountUpdated:
		return "account " + m.change.Account
	}
	return fmt.Sprintf("%v of key %x", m.change.Kind, m.change.KeyHash[:3])
}

// includes reports whether a message of the same subject has the effect of this
// one.
func (m confirming) includes(stored changeMessage) bool {
	return stored.id != "" && stored.change.Revision >= m.change.Revision && stored.epoch >= m.epoch
}

// confirmChanges appends what is committed to the stream of changes, confirms it,
// and writes to Postgres what is confirmed.
func (c *replica) confirmChanges() {
	if c.confirmingChanges {
		return
	}

	c.confirmingChanges = true
	var all []confirming
	var streamed int64
	c.tx("changes to stream", func(d *database) {
		all, streamed = nil, d.streamed
		for _, change := range d.changes {
			if change.Revision > d.streamed {
				all = append(all, confirming{change: change})
			}
		}
		for _, id := range sortedKeys(d.sessions) {
			if r := d.sessions[id]; r.ending && r.state == session.Active {
				all = append(all, confirming{ended: id})
			}
		}
		if d.recovering() {
			all = append(all, confirming{epoch: d.mark.Epoch})
		}
	}, func(ok bool) {
		if !ok {
			c.confirmingChanges = false
			return
		}
		kept := map[confirming]*session.Confirmation{}
		for _, m := range all {
			kept[m] = c.confirmations[m]
			if kept[m] == nil {
				kept[m] = session.NewConfirmation(session.Lasts(window))
			}
			c.confirm(m, kept[m])
		}
		c.confirmations, c.streamed = kept, streamed
		c.writeConfirmed(all)
	})
}

// confirm takes the next step of a confirmation.
func (c *replica) confirm(m confirming, of *session.Confirmation) {
	w := c.w
	switch {
	case of.Append():
		c.append(m, func(at session.Place) {
			if of.Append() {
				of.Appended(c.clock(), at)
			}
		})
	case w.rules.Changes.Due(of, c.clock()):
		at := of.Place()
		askChanges(&c.actor, connected, func(s *changeStream) session.Place {
			if s.name() != at.Incarnation {
				return session.Place{}
			}
			return s.place(at.Sequence)
		}, func(found session.Place, ok bool) {
			if ok && of.Place() == at && !of.Done() {
				if w.rules.Changes.Verified(of, found); of.Append() {
					w.stats.count("changes appended again")
				}
			}
		})
	}
}

// append appends a message to the stream of changes, unless the stream includes it, and
// calls then when the stream has it.
func (c *replica) append(m confirming, then func(at session.Place)) {
	askChanges(&c.actor, connected, func(s *changeStream) session.Place {
		last, sequence := s.last(m.subject())
		if m.includes(last) {
			return s.place(sequence)
		}
		return c.w.store(changeMessage{
			subject: m.subject(),
			change:  m.change,
			ended:   m.ended,
			epoch:   m.epoch,
		})
	}, func(at session.Place, ok bool) {
		if ok {
			then(at)
		}
	})
}

// writeConfirmed writes to Postgres what is confirmed: the revision up to which all
// changes are, and that ended sessions are fenced.
func (c *replica) writeConfirmed(all []confirming) {
	w := c.w
	c.confirmingChanges = false
	streamed, ended := c.streamed, []wire.SessionID{}
	inOrder := true
	for _, m := range all {
		done := c.confirmations[m].Done()
		switch {
		case m.ended != 0 && (done || !w.rules.Changes.ConfirmsEnds):
			ended = append(ended, m.ended)
		case m.epoch != 0 && done:
			c.confirmedEpoch = m.epoch
		case m.change.Revision > 0 && done && inOrder:
			streamed = m.change.Revision
		case m.change.Revision > 0:
			inOrder = false
		}
	}

	if streamed == c.streamed && len(ended) == 0 {
		return
	}

	c.tx("confirmed changes", func(d *database) {
		d.streamed = max(d.streamed, streamed)
		for _, id := range ended {
			r := d.sessions[id]
			if r != nil && r.ending && r.state == session.Active && w.locked(rows{beat: map[wire.SessionID]bool{id: true}}) == 0 {
				w.stats.count("sessions fenced")
				w.stats.count("sessions whose end the stream has confirmed")
				w.checkEnded(id)
				w.log("session %d fenced", id)
				r.state = session.Fenced
			}
		}
	}, func(bool) {})
}

// streamConfirmed reports whether the stream has confirmed a change.
func (c *replica) streamConfirmed(change wire.KeyChange) bool {
	of := c.confirmations[confirming{change: change}]
	return of != nil && of.Done()
}

// checkFresh checks that a proxy which admits has read a beat of the last
// window, and has not been confirmed to lack a change.
func (w *world) checkFresh(r *request) {
	p := r.p
	if since := w.now - p.fresh.provenAt; since > window*21/20 { // with the drift of its clock
		w.fail("I2: %s admits %s after the last beat that it has read was sent", p.name, since)
	}
	if epoch := w.oracle.epochs[r.session]; epoch < w.pg.mark.Epoch && !w.pg.recovering() {
		w.fail("I2: %s admits in session %d of epoch %d after the recovery wait of epoch %d", p.name, r.session, epoch, w.pg.mark.Epoch)
	}
	// Postgres may have lost a revocation that was not confirmed.
	if at, ok := w.storedRevocation(r.secret); ok && w.pg.revoked[r.key.hash] != 0 && w.now-at > windowBound {
		w.fail("I4: %s admits key %s %s after its revocation was appended", p.name, r.key.name, w.now-at)
	}
}

// checkEnded checks that no proxy admits under a session that is being fenced.
func (w *world) checkEnded(id wire.SessionID) {
	for _, p := range w.proxies {
		if p.alive && p.session == id && p.valid(p.clock()) {
			w.fail("I4: session %d is fenced, although %s is fresh and admits under it", id, p.name)
		}
	}
}

// storedRevocation returns when the stream has stored the revocation of a key that
// it has now.
func (w *world) storedRevocation(hash apikey.Hash) (time.Duration, bool) {
	for _, m := range w.changes.messages {
		if m.change.Kind == wire.KeyRevoked && m.change.KeyHash == hash && m.change.Revision > 0 && !m.replaced {
			return m.at, true
		}
	}
	return 0, false
}
