// Package usagelog tracks a proxy's usage events that are not settled yet: the
// session of each, and when it is published again.
package usagelog

import (
	"cmp"
	"slices"
	"time"

	"modelgateway/shared/event"
	"modelgateway/shared/wire"
)

const (
	// resendAfter is how long a published event may stay unsettled before it is published again.
	resendAfter = 2500 * time.Millisecond
	// resendLevels bounds how often that time doubles; the last one is more than five minutes. Without the doubling, the
	// stream would fill with copies while nothing is settled.
	resendLevels = 8
	// resendHeld is the least such time while publications are held.
	resendHeld = time.Hour
)

// Delivery is the delivery state of one event. Callers embed it in their own
// record of the event.
type Delivery struct {
	Session      wire.SessionID
	sentAt       time.Duration
	publications uint8
	settled      bool
	queued       bool
}

func (d *Delivery) delivery() *Delivery { return d }

// Settled reports whether the event is known to be in Postgres.
func (d *Delivery) Settled() bool { return d.settled }

// Entry is a pointer to a type that embeds a Delivery.
type Entry interface {
	comparable
	delivery() *Delivery
}

// Log has the usage events of a proxy that the control plane has not reported
// settled, by session and sequence number, and decides when they are published.
// An event is kept until it is settled; the stream's acknowledgement is not
// enough (invariant I6).
type Log[E Entry] struct {
	sessions map[wire.SessionID]*SessionLog[E]
	pending  int64
	queue    []E // to be published, in order
	sent     [resendLevels][]publication[E]
	held     bool
}

// SessionLog has the unsettled events of one session.
type SessionLog[E Entry] struct {
	BootID string
	// Last is the sequence number of the session's last event, Written that of the last one that the caller has written to
	// disk.
	Last, Written int64
	// Running is how many of the session's requests have started and not finished.
	Running int
	// entries are the events from the first unsettled one on, whose sequence number is first. An entry is zero if its event
	// was lost.
	first   int64
	entries []E
	// ended: no request may start any more. closed: the session is dropped once everything is settled.
	ended, closed bool
}

// publication is one publication of an event. It is obsolete if the event was
// published again or queued since.
type publication[E Entry] struct {
	e  E
	at time.Duration
}

// New returns a Log without sessions.
func New[E Entry]() *Log[E] {
	return &Log[E]{sessions: map[wire.SessionID]*SessionLog[E]{}}
}

// Pending returns how many events are unsettled.
func (u *Log[E]) Pending() int64 { return u.pending }

// Sessions returns the ids of the known sessions, sorted.
func (u *Log[E]) Sessions() []wire.SessionID {
	ids := make([]wire.SessionID, 0, len(u.sessions))
	for id := range u.sessions {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// Session returns the log of a session, or nil.
func (u *Log[E]) Session(id wire.SessionID) *SessionLog[E] { return u.sessions[id] }

// Open adds a session, or returns the one of that id.
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

// AcceptsRequests reports whether a request may start in the session.
func (l *SessionLog[E]) AcceptsRequests() bool { return l != nil && !l.ended }

// Unsettled returns the session's known events that are not settled.
func (l *SessionLog[E]) Unsettled() []E {
	var none E
	return slices.DeleteFunc(slices.Clone(l.entries), func(e E) bool { return e == none || e.delivery().settled })
}

// Watermark returns the sequence number up to which every event is settled.
func (l *SessionLog[E]) Watermark() int64 {
	if len(l.entries) == 0 {
		return l.Last
	}
	return l.first - 1
}

// Add adds an event with its sequence number, which is above the last one. If
// numbers are missing before it, because a file was damaged, their events count
// as settled.
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

// FinishedSessions returns close requests for the sessions, other than the open
// ones. From now on no request may start in them. The event counts of those in which
// no request runs any more are final; the requests for the others only fence them.
func (u *Log[E]) FinishedSessions(open ...wire.SessionID) []wire.CloseRequest {
	var ended []wire.CloseRequest
	for id, l := range u.sessions {
		if slices.Contains(open, id) || l.closed {
			continue
		}
		l.ended = true
		count := l.Last
		if l.Running > 0 {
			count = wire.NotFinal
		}
		ended = append(ended, wire.CloseRequest{
			V:          wire.Version,
			Session:    id,
			BootID:     l.BootID,
			FinalCount: count,
		})
	}

	slices.SortFunc(ended, func(a, b wire.CloseRequest) int { return cmp.Compare(a.Session, b.Session) })
	return ended
}

// MarkClosed records that the control plane has closed a finished session, and
// reports whether the session was dropped. It is dropped when its last event is
// settled, which may be later: the control plane closes a session that was
// silent for long before its events are settled.
func (u *Log[E]) MarkClosed(id wire.SessionID) (dropped bool) {
	l := u.sessions[id]
	if l == nil || !l.ended || l.Running > 0 {
		return false
	}
	l.closed = true
	return u.dropIfDone(id)
}

func (u *Log[E]) dropIfDone(id wire.SessionID) bool {
	l := u.sessions[id]
	if !l.closed || len(l.entries) > 0 {
		return false
	}
	delete(u.sessions, id)
	return true
}

// MarkSettled applies the message about the settled events of a session, and
// calls released for each event that was unsettled before. It reports whether
// the watermark has moved, and whether the session was dropped.
func (u *Log[E]) MarkSettled(m event.Settled, released func(E)) (moved, dropped bool) {
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
	return l.Watermark() > before, u.dropIfDone(id)
}

// Drop drops a session with all its events.
func (u *Log[E]) Drop(id wire.SessionID, released func(E)) {
	if l := u.sessions[id]; l != nil {
		u.mark(l, l.first, l.Last, released)
		delete(u.sessions, id)
	}
}

// mark marks the events with the numbers from low to high as settled.
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

// Enqueue queues an event for publication.
func (u *Log[E]) Enqueue(e E) {
	if d := e.delivery(); !d.settled && !d.queued {
		d.queued = true
		u.queue = append(u.queue, e)
	}
}

// NextBatch returns the events of the next message, all of one session, or none
// if no event is due. An event is due if it was never published, if Requeue has
// queued it, or if it was published some time ago and is still unsettled. read
// returns the size of an event, or false if it cannot be read now; such an event
// is tried again later. now is the reading of a clock that does not go back.
func (u *Log[E]) NextBatch(limit, maxBytes int, now time.Duration, read func(E) (size int, ok bool)) []E {
	u.enqueueOverdue(now)
	var batch, others []E // others are of other sessions and stay at the front of the queue
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
		u.recordPublication(e, now)

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

// recordPublication records that a queued event is published.
func (u *Log[E]) recordPublication(e E, now time.Duration) {
	d := e.delivery()
	level := min(int(d.publications), resendLevels-1)
	d.queued, d.sentAt = false, now
	d.publications = uint8(level + 1)
	u.sent[level] = append(u.sent[level], publication[E]{e, now})
}

// enqueueOverdue queues the published events again that are unsettled for too long.
func (u *Log[E]) enqueueOverdue(now time.Duration) {
	var none E
	for level, wait := 0, resendAfter; level < resendLevels; level, wait = level+1, 2*wait {
		sent, due := u.sent[level], wait
		if u.held {
			due = max(wait, resendHeld)
		}
		for len(sent) > 0 && (sent[0].obsolete() || now-sent[0].at >= due) {
			if !sent[0].obsolete() {
				u.Enqueue(sent[0].e)
			}
			sent[0].e = none
			sent = sent[1:]
		}
		u.sent[level] = sent
	}
}

// Hold says whether settlement is known to be behind or cannot be reached. While
// it is, events are published once and seldom again: they wait in the stream, and
// every copy would wait there, too.
func (u *Log[E]) Hold(held bool) { u.held = held }

func (p publication[E]) obsolete() bool {
	d := p.e.delivery()
	return d.settled || d.queued || d.sentAt != p.at
}

// Requeue queues the events of a batch again that could not be published.
func (u *Log[E]) Requeue(batch []E) {
	for _, e := range batch {
		d := e.delivery()
		d.publications = max(d.publications, 1) - 1
		u.Enqueue(e)
	}
}

// Republish queues every unsettled event again.
func (u *Log[E]) Republish() {
	for level := range u.sent {
		for _, p := range u.sent[level] {
			if !p.obsolete() {
				p.e.delivery().publications = 0
				u.Enqueue(p.e)
			}
		}
		u.sent[level] = nil
	}
}

// EachOldest calls visit with the oldest unsettled event of each session.
func (u *Log[E]) EachOldest(visit func(E)) {
	for _, l := range u.sessions {
		if len(l.entries) > 0 {
			visit(l.entries[0]) // unsettled, because shift drops settled events
		}
	}
}
