package spool

import (
	"encoding/json"
	"log/slog"
	"time"
)

// Batch is what is to be published in one message: events of one session.
type Batch struct {
	Session int64
	Events  []json.RawMessage
	entries []*entry
}

// Next returns the next batch of at most limit events, or nil when nothing is
// due: what was never published, what Failed, and what was published some
// time ago and is still not settled.
func (s *Spool) Next(limit int, now time.Time) *Batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requeue(now)
	var batch *Batch
	rest := s.queue[:0]
	for i, e := range s.queue {
		switch {
		case e.settled:
			e.queued = false
			continue
		case batch == nil:
			batch = &Batch{Session: e.session}
		case e.session != batch.Session || len(batch.entries) >= limit:
			rest = append(rest, s.queue[i])
			continue
		}
		data, err := e.read()
		if err != nil {
			s.broken = err
			s.log.Error("read usage event", slog.Any("error", err))
			rest = append(rest, e)
			continue
		}
		e.queued = false
		batch.entries = append(batch.entries, e)
		batch.Events = append(batch.Events, data)
	}
	clear(s.queue[len(rest):])
	s.queue = rest
	if batch == nil || len(batch.entries) == 0 {
		return nil
	}
	for _, e := range batch.entries {
		e.sentAt = now
	}
	s.sent = append(s.sent, batch.entries...)
	return batch
}

func (e *entry) read() ([]byte, error) {
	if e.memory != nil {
		return e.memory, nil
	}
	return e.segment.body(e.offset, e.size)
}

// requeue puts those sent entries back that have waited long enough.
func (s *Spool) requeue(now time.Time) {
	for len(s.sent) > 0 {
		e := s.sent[0]
		if !e.settled && !e.queued && now.Sub(e.sentAt) < resendAfter {
			return
		}
		if !e.settled && !e.queued {
			e.queued = true
			s.queue = append(s.queue, e)
		}
		s.sent = s.sent[1:]
	}
}

// Failed puts a batch back that could not be published.
func (s *Spool) Failed(b *Batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range b.entries {
		if !e.settled && !e.queued {
			e.queued = true
			s.queue = append(s.queue, e)
		}
	}
}

// Republish has everything unsettled published again.
func (s *Spool) Republish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.sent {
		if !e.settled && !e.queued {
			e.queued = true
			s.queue = append(s.queue, e)
		}
	}
	s.sent = nil
	s.signal()
}

// Oldest is when the oldest unsettled event was first due; zero if there is
// none.
func (s *Spool) Oldest() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.sent {
		if !e.settled {
			return e.sentAt
		}
	}
	return time.Time{}
}
