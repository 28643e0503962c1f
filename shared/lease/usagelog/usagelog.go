package usagelog

import (
	"cmp"
	"slices"
	"time"

	"modelgateway/shared/event"
	"modelgateway/shared/wire"
)

const (
	// resendAfter is how long an event that was published once may stay unsettled before it is published again.
	resendAfter = 2500 * time.Millisecond
	// sendLevels bounds how often that time doubles, to more than five minutes: while nothing settles at all, the stream
	// must not fill with repetitions.
	sendLevels = 8
)

// Delivery is how far one event has come on its way to settlement. It is
// embedded in what a proxy keeps of the event.
type Delivery struct {
	Session wire.SessionID
	sentAt  time.Duration
	sends   uint8
	settled bool
	queued  bool
}

func (d *Delivery) delivery() *Delivery { return d }

// Settled tells whether the event is known to be in Postgres.
func (d *Delivery) Settled() bool { return d.settled }

// Delivered is a pointer to something that embeds a Delivery.
type Entry interface {
	comparable
	delivery() *Delivery
}

// Unsettled is the usage of a proxy that the control plane has not reported
// settled: the events of each session, numbered 1, 2, 3…, and which of them are
// to be published when. An event is kept until it is settled; that the stream
// has taken it is not enough.
type Log[E Entry] struct {
	sessions map[wire.SessionID]*SessionLog[E]
	pending  int64
	queue    []E // to be published, in order
	sent     [sendLevels][]sending[E]
}

// Life is what is known of one session's usage.
type SessionLog[E Entry] struct {
	BootID string
	// Last is the number of the session's last event, Written that of the last one that the caller has on disk.
	Last, Written int64
	// Running is how many of its requests have started and not finished.
	Running int
	// entries are the events from the first unsettled one on, which has the number first. A zero one is not known.
	first   int64
	entries []E
	// ended: nothing may be started any more. closed: forgotten once everything is settled.
	ended, closed bool
}

// sending is one publishing of an event. It is out of date when the event was
// published again or failed since.
type sending[E Entry] struct {
	e  E
	at time.Duration
}

// NewUnsettled returns an Unsettled that knows no session.
func New[E Entry]() *Log[E] {
	return &Log[E]{sessions: map[wire.SessionID]*SessionLog[E]{}}
}

// Pending is how many events are unsettled.
func (u *Log[E]) Pending() int64 { return u.pending }

// Sessions lists the sessions that are known, in order.
func (u *Log[E]) Sessions() []wire.SessionID {
	ids := make([]wire.SessionID, 0, len(u.sessions))
	for id := range u.sessions {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// Life is what is known of a session, or nil.
func (u *Log[E]) Session(id wire.SessionID) *SessionLog[E] { return u.sessions[id] }

// Open makes a session known.
func (u *Log[E]) Open(id wire.SessionID, boot string) *SessionLog[E] {
	l := u.sessions[id]
	if l == nil {
		l = &SessionLog[E]{}
		u.sessions[id] = l
	}
	if l.BootID == "" {
		l.BootID = boot
	}
	return l
}

// Startable tells whether a request may start under the session.
func (l *SessionLog[E]) AcceptsRequests() bool { return l != nil && !l.ended }

// Unsettled lists the session's events that are known and not settled.
func (l *SessionLog[E]) Unsettled() []E {
	var none E
	return slices.DeleteFunc(slices.Clone(l.entries), func(e E) bool { return e == none || e.delivery().settled })
}

// Watermark is the number up to which every event is settled.
func (l *SessionLog[E]) Watermark() int64 {
	if len(l.entries) == 0 {
		return l.Last
	}
	return l.first - 1
}

// Add takes in the event of a number, which is above the last one. Numbers that
// are missing before it, which only a damaged file can have lost, count as
// settled.
func (u *Log[E]) Add(number int64, e E) {
	l := u.sessions[e.delivery().Session]
	if len(l.entries) == 0 {
		l.first = number
	}
	var missing E
	for l.first+int64(len(l.entries)) < number {
		l.entries = append(l.entries, missing)
	}
	l.entries = append(l.entries, e)
	l.Last = number
	u.pending++
}

// Ended lists the sessions other than the current one in which nothing runs any
// more. Nothing starts in them from now on: their counts are final.
func (u *Log[E]) FinishedSessions(current wire.SessionID) []wire.CloseRequest {
	var ended []wire.CloseRequest
	for id, l := range u.sessions {
		if id == current || l.Running > 0 || l.closed {
			continue
		}
		l.ended = true
		ended = append(ended, wire.CloseRequest{V: wire.Version, Session: id, BootID: l.BootID, FinalCount: l.Last})
	}
	slices.SortFunc(ended, func(a, b wire.CloseRequest) int { return cmp.Compare(a.Session, b.Session) })
	return ended
}

// Closed notes that the control plane has closed an ended session, and returns
// whether it is forgotten by that. It is when its last event is settled, which
// may be later: a session that was silent for long is closed without its
// events, and takes them still.
func (u *Log[E]) MarkClosed(id wire.SessionID) (forgotten bool) {
	l := u.sessions[id]
	if l == nil || !l.ended {
		return false
	}
	l.closed = true
	return u.forget(id)
}

func (u *Log[E]) forget(id wire.SessionID) bool {
	l := u.sessions[id]
	if !l.closed || len(l.entries) > 0 {
		return false
	}
	delete(u.sessions, id)
	return true
}

// Settle takes in which events of a session are settled; released is called
// with each that was not known to be. It returns whether the watermark has
// moved, and whether the session is forgotten by that.
func (u *Log[E]) MarkSettled(m event.Settled, released func(E)) (moved, forgotten bool) {
	id := wire.SessionID(m.Session)
	l := u.sessions[id]
	if l == nil {
		return false, false
	}
	before := l.Watermark()
	u.mark(l, l.first, m.Watermark, released)
	for _, span := range m.Beyond {
		u.mark(l, span[0], span[1], released)
	}
	l.shift()
	return l.Watermark() > before, u.forget(id)
}

// Drop forgets a session with all its events.
func (u *Log[E]) Drop(id wire.SessionID, released func(E)) {
	if l := u.sessions[id]; l != nil {
		u.mark(l, l.first, l.Last, released)
		delete(u.sessions, id)
	}
}

// mark counts the events numbered from low to high as settled.
func (u *Log[E]) mark(l *SessionLog[E], low, high int64, released func(E)) {
	var none E
	for i := max(low, l.first); i <= min(high, l.first+int64(len(l.entries))-1); i++ {
		e := l.entries[i-l.first]
		if e == none || e.delivery().settled {
			continue
		}
		e.delivery().settled = true
		u.pending--
		released(e)
	}
}

// shift drops the settled events at the front.
func (l *SessionLog[E]) shift() {
	var none E
	for len(l.entries) > 0 && (l.entries[0] == none || l.entries[0].delivery().settled) {
		l.entries[0] = none
		l.entries = l.entries[1:]
		l.first++
	}
}

// Enqueue has an event published.
func (u *Log[E]) Enqueue(e E) {
	if d := e.delivery(); !d.settled && !d.queued {
		d.queued = true
		u.queue = append(u.queue, e)
	}
}

// Next returns the next events to be published in one message, all of one
// session, or none when nothing is due: what was never published, what Failed,
// and what was published some time ago and is still not settled. read returns
// the size of an event; one that it cannot read now is tried again later. now
// is of a clock that does not go back.
func (u *Log[E]) NextBatch(limit, maxBytes int, now time.Duration, read func(E) (size int, ok bool)) []E {
	u.requeue(now)
	var batch, others []E // others are of other sessions, and stay in front
	size, i := 0, 0
	for ; i < len(u.queue) && len(batch) < limit && len(others) < limit && size < maxBytes; i++ {
		e := u.queue[i]
		d := e.delivery()
		switch {
		case d.settled:
			d.queued = false
			continue
		case len(batch) > 0 && d.Session != batch[0].delivery().Session:
			others = append(others, e)
			continue
		}
		n, ok := read(e)
		u.sending(e, now)
		if ok {
			batch = append(batch, e)
			size += n
		}
	}
	copy(u.queue[i-len(others):i], others)
	clear(u.queue[:i-len(others)])
	u.queue = u.queue[i-len(others):]
	return batch
}

// sending notes that an event of the queue is published.
func (u *Log[E]) sending(e E, now time.Duration) {
	d := e.delivery()
	level := min(int(d.sends), sendLevels-1)
	d.queued, d.sentAt = false, now
	d.sends = uint8(level + 1)
	u.sent[level] = append(u.sent[level], sending[E]{e, now})
}

// requeue puts those published events back that have waited long enough.
func (u *Log[E]) requeue(now time.Duration) {
	var none E
	for level, wait := 0, resendAfter; level < sendLevels; level, wait = level+1, 2*wait {
		sent := u.sent[level]
		for len(sent) > 0 && (sent[0].done() || now-sent[0].at >= wait) {
			if !sent[0].done() {
				u.Enqueue(sent[0].e)
			}
			sent[0].e = none
			sent = sent[1:]
		}
		u.sent[level] = sent
	}
}

func (p sending[E]) done() bool {
	d := p.e.delivery()
	return d.settled || d.queued || d.sentAt != p.at
}

// Failed puts events back that could not be published.
func (u *Log[E]) Requeue(batch []E) {
	for _, e := range batch {
		d := e.delivery()
		d.sends = max(d.sends, 1) - 1
		u.Enqueue(e)
	}
}

// Republish has everything unsettled published again.
func (u *Log[E]) Republish() {
	for level := range u.sent {
		for _, p := range u.sent[level] {
			if !p.done() {
				p.e.delivery().sends = 0
				u.Enqueue(p.e)
			}
		}
		u.sent[level] = nil
	}
}

// Oldest calls see with the oldest unsettled event of each session.
func (u *Log[E]) EachOldest(see func(E)) {
	for _, l := range u.sessions {
		if len(l.entries) > 0 {
			see(l.entries[0]) // the first is never settled: shift drops those
		}
	}
}
