package sim

import (
	"time"

	"modelgateway/shared/event"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/lease/usagelog"
	"modelgateway/shared/wire"
)

// disk is the spool directory, which a new process of the proxy reads.
type disk struct {
	sessions map[wire.SessionID]*diskSession
	started  map[[16]byte]*request
	// records counts the records that were written.
	records    int
	checkpoint *keptCheckpoint
}

type diskSession struct {
	boot            string
	last, watermark int64
	events          map[int64]*usage
}

func newDisk() *disk {
	return &disk{sessions: map[wire.SessionID]*diskSession{}, started: map[[16]byte]*request{}}
}

// usage is a usage event.
type usage struct {
	usagelog.Delivery
	id             [16]byte
	n, cost        int64
	fingerprint    [32]byte
	balance, limit wire.PoolID
	windows        []wire.PoolID
	request        *request
	// written is the number of its record on the disk.
	written int
}

func (p *proxy) usedCapacity() int { return p.reserved + p.started + int(p.usage.Pending()) }

// recordUsage appends the usage event of a request to the spool.
func (p *proxy) recordUsage(r *request, cost int64) {
	l := p.usage.Open(r.session, "")
	e := &usage{
		Delivery: usagelog.Delivery{Session: r.session},
		id:       r.id,
		n:        l.Last + 1,
		cost:     cost,
		balance:  r.customer.balance,
		limit:    r.key.limit,
		windows:  p.w.rules.Limits.Charged(r),
	}
	copy(e.fingerprint[:], e.id[:])
	e.fingerprint[31] = byte(cost)
	kept := p.disk.sessions[r.session]
	if kept == nil {
		kept = &diskSession{boot: l.BootID, events: map[int64]*usage{}}
		p.disk.sessions[r.session] = kept
	}

	e.request, e.written = r, p.disk.write()
	kept.last = e.n
	kept.events[e.n] = e
	p.usage.Add(e.n, e)
	p.usage.Enqueue(e)

	if p.schedule != nil {
		p.schedule.EventQueued(p.clock().Mono)
		p.publish()
	}

	p.w.oracle.events[e.id] = &outcome{
		cost:      cost,
		session:   r.session,
		limit:     r.key.limit,
		balance:   r.customer.balance,
		windows:   r.windows,
		windowsAt: r.windowsAt,
	}
}

// publish publishes a message if the schedule has one due.
func (p *proxy) publish() {
	now := p.clock().Mono
	due, wake := p.schedule.Next(now)
	if !due {
		if wake > 0 && wake < p.publishWake {
			p.publishWake = wake
			p.after(wake-now+time.Microsecond, func() {
				if p.publishWake == wake {
					p.publishWake = session.Never
					p.publish()
				}
			})
		}
		return
	}

	batch := p.usage.NextBatch(5, 1<<20, now, func(*usage) (int, bool) { return 1, true })
	if len(batch) == 0 {
		p.schedule.Drained(now)
		p.publish()
		return
	}

	sent := make([]*usage, len(batch))
	for i, e := range batch {
		copied := *e
		sent[i] = &copied
	}

	p.w.alter(sent[0])
	usage, schedule := p.usage, p.schedule
	p.w.publish(p, sent, func() {
		p.w.rules.OnStored(usage, batch)
		schedule.Published(p.clock().Mono, true)
		p.publish()
	}, func() {
		usage.Requeue(batch)
		schedule.Published(p.clock().Mono, false)
		p.publish()
	})
}

// alter sometimes publishes an event again with another cost, as a faulty proxy
// might do.
func (w *world) alter(e *usage) {
	if !w.chance(w.profile.AlterEvent) {
		return
	}
	altered := *e
	altered.cost++
	altered.fingerprint[31]++
	w.after(w.between(time.Second, 3*time.Second), func() {
		if !w.stream.missing && w.settledNow(altered.id) {
			w.oracle.altered[altered.id] = true
			w.stats.count("altered duplicates")
			w.stream.messages = append(w.stream.messages, message{at: w.now, events: []*usage{&altered}})
		}
	})
}

// handleSettled handles a watermark.
func (p *proxy) handleSettled(m event.Settled) {
	id := wire.SessionID(m.Session)
	l := p.usage.Session(id)
	if l == nil {
		return
	}
	_, forgotten := p.usage.MarkSettled(m, func(*usage) {})
	p.trim(id, l.Watermark(), forgotten)
}

// trim drops settled events from the disk.
func (p *proxy) trim(id wire.SessionID, watermark int64, forgotten bool) {
	kept := p.disk.sessions[id]
	if kept == nil {
		return
	}

	for n := range kept.events {
		if n <= watermark {
			if c := p.disk.checkpoint; c != nil && kept.events[n].written > c.written {
				p.disk.checkpoint = nil // what is consumed since is not known any more
			}
			delete(kept.events, n)
		}
	}

	kept.watermark = max(kept.watermark, watermark)
	if forgotten {
		delete(p.disk.sessions, id)
	}
}
