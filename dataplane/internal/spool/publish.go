package spool

import (
	"encoding/json"
	"log/slog"
	"time"
)

const (
	// resendAfter is how long an event that was published once may stay unsettled before it is published again.
	resendAfter = 2500 * time.Millisecond
	// levels bounds how often that time doubles, to more than five minutes: while nothing settles at all, the stream
	// must not fill with repetitions.
	levels = 8
	// maxBatchBytes bounds a batch, so that a message of it is below what the bus takes.
	maxBatchBytes = 512 << 10
)

// Batch is what is to be published in one message: events of one session.
type Batch struct {
	Session int64
	Events  []json.RawMessage
	entries []*entry
	size    int // of all events
}

// sending is one publishing of an event. It is out of date when the event was
// published again or failed since.
type sending struct {
	e  *entry
	at time.Duration
}

// Next returns the next batch of at most limit events, or nil when nothing is
// due: what was never published, what Failed, and what was published some
// time ago and is still not settled.
func (s *Spool) Next(limit int, now time.Time) *Batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		s.probe()
	}
	at := now.Sub(s.opened)
	s.requeue(at)
	batch := &Batch{}
	var others []*entry // of other sessions: they stay in front
	i := 0
	for ; i < len(s.queue) && len(batch.entries) < limit && len(others) < limit && batch.size < maxBatchBytes; i++ {
		e := s.queue[i]
		switch {
		case e.settled:
			e.queued = false
			continue
		case batch.Session != 0 && e.session != batch.Session:
			others = append(others, e)
			continue
		}
		data, err := e.read()
		s.drop(e)
		s.sending(e, at)
		if err != nil { // tried again like one that is not settled
			s.log.Error("read usage event", slog.Any("error", err), slog.Int64("session", e.session))
			continue
		}
		batch.Session = e.session
		batch.entries = append(batch.entries, e)
		batch.Events = append(batch.Events, data)
		batch.size += len(data)
	}
	copy(s.queue[i-len(others):i], others)
	clear(s.queue[:i-len(others)])
	s.queue = s.queue[i-len(others):]
	if len(batch.entries) == 0 {
		return nil
	}
	return batch
}

func (e *entry) read() ([]byte, error) {
	if e.record != nil {
		return e.record[headSize:], nil
	}
	return e.segment.body(e.offset, e.size)
}

// sending notes that an entry of the queue is published.
func (s *Spool) sending(e *entry, at time.Duration) {
	level := min(int(e.sends), levels-1)
	e.queued, e.sentAt = false, at
	e.sends = uint8(level + 1)
	s.sent[level] = append(s.sent[level], sending{e, at})
}

// requeue puts those sent entries back that have waited long enough.
func (s *Spool) requeue(at time.Duration) {
	for level, wait := 0, resendAfter; level < levels; level, wait = level+1, 2*wait {
		sent := s.sent[level]
		for len(sent) > 0 && (sent[0].done() || at-sent[0].at >= wait) {
			if !sent[0].done() {
				s.enqueue(sent[0].e)
			}
			sent[0].e = nil
			sent = sent[1:]
		}
		s.sent[level] = sent
	}
}

func (p sending) done() bool { return p.e.settled || p.e.queued || p.e.sentAt != p.at }

func (s *Spool) enqueue(e *entry) {
	if !e.settled && !e.queued {
		e.queued = true
		s.queue = append(s.queue, e)
	}
}

// Failed puts a batch back that could not be published.
func (s *Spool) Failed(b *Batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range b.entries {
		e.sends = max(e.sends, 1) - 1
		s.enqueue(e)
	}
}

// Republish has everything unsettled published again.
func (s *Spool) Republish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for level := range s.sent {
		for _, p := range s.sent[level] {
			if !p.done() {
				p.e.sends = 0
				s.enqueue(p.e)
			}
		}
		s.sent[level] = nil
	}
	s.signal()
}

// Oldest is when the oldest unsettled request finished; zero if there is none.
func (s *Spool) Oldest() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	var oldest time.Time
	for _, n := range s.sessions {
		if len(n.entries) == 0 {
			continue
		}
		if due := time.UnixMilli(n.entries[0].dueMS); oldest.IsZero() || due.Before(oldest) {
			oldest = due
		}
	}
	return oldest
}
