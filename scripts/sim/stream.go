package sim

import (
	"time"

	"modelgateway/shared/event"
	"modelgateway/shared/lease/settlement"
	"modelgateway/shared/wire"
)

// ackWait is how long a message may stay unacknowledged before it is delivered
// again.
const ackWait = 2 * time.Second

// stream is the modelled usage stream: messages in order, of which a power failure
// may lose the last ones, and one durable consumer.
type stream struct {
	messages []message
	missing  bool // deleted, until a replica creates it again
	next     int
	// taken has the time until which each fetched message is not delivered again.
	taken map[int]time.Duration
}

type message struct {
	at     time.Duration
	events []*usage
	acked  bool
}

// replay makes the stream deliver all messages again.
func (s *stream) replay() {
	s.next, s.taken = 0, map[int]time.Duration{}
	for i := range s.messages {
		s.messages[i].acked = false
	}
}

// maxPending is how many messages may wait before settlement counts as behind.
const maxPending = 16

func (s *stream) backlog() bool { return len(s.messages)-s.next+len(s.taken) > maxPending }

// fetch returns the indexes of the next messages to deliver, at most limit.
func (s *stream) fetch(limit int, now time.Duration) []int {
	var batch []int
	for i := 0; i < s.next && len(batch) < limit; i++ {
		if until, ok := s.taken[i]; ok && !s.messages[i].acked && now >= until {
			batch = append(batch, i)
		}
	}
	for s.next < len(s.messages) && len(batch) < limit {
		batch = append(batch, s.next)
		s.next++
	}
	for _, i := range batch {
		s.taken[i] = now + ackWait
	}
	return batch
}

// loseTail loses the messages that were stored within the last d.
func (w *world) loseTail(d time.Duration) {
	s := &w.stream
	n := len(s.messages)
	for n > 0 && s.messages[n-1].at > w.now-d {
		n--
	}

	if n == len(s.messages) {
		return
	}

	w.stats.count("stream tails lost")
	w.log("stream loses its last %d messages", len(s.messages)-n)

	for i := n; i < len(s.messages); i++ {
		delete(s.taken, i)
	}

	s.messages = s.messages[:n]
	s.next = min(s.next, n)
	w.oracle.destroyed()
}

func (w *world) deleteStream() {
	w.stats.count("streams deleted")
	w.log("stream deleted")
	w.stream = stream{missing: true, taken: map[int]time.Duration{}}
	w.oracle.destroyed()
}

// publish sends a batch to the stream. It calls stored when the acknowledgement
// arrives, or failed after callTimeout.
func (w *world) publish(p *proxy, batch []*usage, stored, failed func()) {
	over := false
	finish := func(do func()) {
		if !over {
			over = true
			do()
		}
	}
	w.carryToBus(&p.actor, func() {
		if w.stream.missing {
			return
		}
		w.stream.messages = append(w.stream.messages, message{at: w.now, events: batch})
		w.carryFromBus(&p.actor, func() { finish(stored) })
	})
	p.after(callTimeout, func() { finish(failed) })
}

func (w *world) carryToBus(from *actor, deliver func()) {
	if w.busDown || from.mute || w.chance(w.profile.LoseMessage) {
		return
	}
	n := 1
	if w.chance(w.profile.DoubleMessage) {
		n = 2
	}
	for range n {
		w.after(w.between(100*time.Microsecond, time.Millisecond), func() {
			if !w.busDown {
				deliver()
			}
		})
	}
}

func (w *world) carryFromBus(to *actor, deliver func()) {
	if w.busDown || to.deaf || w.chance(w.profile.LoseMessage) {
		return
	}
	to.after(w.between(100*time.Microsecond, time.Millisecond), deliver)
}

// settle settles messages of the stream.
func (c *replica) settle() {
	w := c.w
	if w.busDown || c.deaf || c.mute {
		return
	}

	if w.stream.missing {
		c.tx("record new stream", func(d *database) { d.incarnation++ }, func(ok bool) {
			if ok && !w.busDown {
				w.stream.missing = false
			}
		})
		return
	}

	ids := w.stream.fetch(8, w.now)
	if len(ids) == 0 {
		return
	}

	var events []*usage
	for _, i := range ids {
		events = append(events, w.stream.messages[i].events...)
	}

	var windows []wire.PoolID
	r := rows{pools: map[wire.PoolID]bool{}, shared: map[wire.SessionID]bool{}}
	for _, e := range events {
		r.pools[e.balance], r.pools[e.limit], r.shared[e.Session] = true, true, true
		for _, pool := range e.windows {
			r.pools[pool], windows = true, append(windows, pool)
		}
	}

	c.openedWindows(nil, windows, func(map[wire.PoolID]wire.PoolID) { c.settleIn(r, ids, events) }, func() {})
}

// settleIn settles events of messages in a transaction that locks rows.
func (c *replica) settleIn(r rows, ids []int, events []*usage) {
	w := c.w
	before := w.stream.messages
	var marks []event.Settled
	c.writeTx("settle", r, func(d *database) { marks = w.settleEvents(d, events) }, func(ok bool) {
		if !ok || w.busDown {
			return
		}
		for _, i := range ids { // the stream may have been created again in the meantime
			if i < len(w.stream.messages) && i < len(before) && w.stream.messages[i].at == before[i].at &&
				!w.chance(w.profile.LoseMessage) {
				w.stream.messages[i].acked = true
				delete(w.stream.taken, i)
			}
		}
		for _, mark := range marks {
			if p := w.oracle.owner[wire.SessionID(mark.Session)]; p != nil {
				w.carry(&c.actor, &p.actor, "watermark", func() { p.handleSettled(mark) })
			}
		}
	})
}

// settleEvents settles events in one transaction, and returns the watermarks.
func (w *world) settleEvents(d *database, events []*usage) []event.Settled {
	charges := make([]settlement.Charge, len(events))
	sessions, pools := map[wire.SessionID]bool{}, map[wire.PoolID]bool{}
	for i, e := range events {
		charges[i] = settlement.Charge{
			Request:     e.id,
			Fingerprint: e.fingerprint,
			Session:     e.Session,
			Cost:        e.cost,
			Pools:       append([]wire.PoolID{e.balance, e.limit}, e.windows...),
		}
		sessions[e.Session] = true
		for _, pool := range charges[i].Pools {
			pools[pool] = true
			charges[i].Invalid = charges[i].Invalid || d.pools[pool] == nil
		}
	}

	s := settlement.NewBatch(charges)
	took := map[[16]byte]bool{}
	for _, i := range s.Candidates() { // as the unique index of usage records does
		if _, settled := d.usage[charges[i].Request]; !settled {
			took[charges[i].Request] = true
		}
	}

	for _, i := range w.rules.MarkInserted(s, took) {
		c := &charges[i]
		d.usage[c.Request] = usageRecord{c.Cost, c.Fingerprint}
		for _, pool := range c.Pools {
			d.spent[pool] += c.Cost
		}
	}

	known := map[[16]byte][32]byte{}
	for _, i := range s.Unresolved() {
		if r, ok := d.usage[charges[i].Request]; ok {
			known[charges[i].Request] = r.fingerprint
		}
	}

	w.rules.ResolveDuplicates(s, known)
	for i, v := range s.Outcomes {
		w.checkOutcome(events[i], v)
		if v == settlement.Conflicting || v == settlement.Invalid {
			d.quarantine[events[i].id]++
		}
	}

	b := d.loadAllocator(pools, sessions)
	records := d.sessionRecords(sessions, d.now(w))
	w.checkLate(d, s, records)
	w.rules.ApplyCharges(s, b, records)
	w.saveAllocator(b)

	return w.number(d, events)
}

// number adds the sequence numbers of the events to those that are settled, and
// returns the watermarks of their sessions.
func (w *world) number(d *database, events []*usage) []event.Settled {
	touched, unknown := map[wire.SessionID]bool{}, []event.Settled{}
	for _, e := range events {
		if r := d.sessions[e.Session]; r != nil {
			r.settled = r.settled.Add(e.n)
			touched[e.Session] = true
		} else {
			unknown = append(
				unknown,
				event.Settled{V: event.Version, Session: int64(e.Session), Beyond: settlement.IntervalSet{{e.n, e.n}}},
			)
		}
	}

	var marks []event.Settled
	for _, id := range sortedKeys(touched) {
		m := d.sessions[id].settled.Settled(id)
		beyond := make([][2]int64, len(m.Beyond))
		copy(beyond, m.Beyond)
		m.Beyond = beyond
		marks = append(marks, m)
	}

	return append(marks, unknown...)
}
