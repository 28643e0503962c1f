package spool

import (
	"encoding/json"
	"log/slog"
	"time"
)

// maxBatchBytes bounds a batch, so that a message of it is below what the bus
// takes.
const maxBatchBytes = 512 << 10

// Batch is what is to be published in one message: events of one session.
type Batch struct {
	Session int64
	Events  []json.RawMessage
	entries []*entry
	size    int // of all events
}

// Next returns the next batch of at most limit events, or nil when nothing is
// due.
func (s *Spool) NextBatch(limit int, now time.Time) *Batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writeErr != nil {
		s.probeDisk()
	}
	batch := &Batch{}
	batch.entries = s.usage.NextBatch(limit, maxBatchBytes, now.Sub(s.openedAt), func(e *entry) (int, bool) {
		data, err := e.loadBody()
		s.dropRecord(e)
		if err != nil {
			s.log.Error("read usage event", slog.Any("error", err), slog.Int64("session", int64(e.Session)))
			return 0, false
		}
		batch.Events = append(batch.Events, data)
		batch.size += len(data)
		return len(data), true
	})
	if len(batch.entries) == 0 {
		return nil
	}
	batch.Session = int64(batch.entries[0].Session)
	return batch
}

func (e *entry) loadBody() ([]byte, error) {
	if e.record != nil {
		return e.record[prefixSize:], nil
	}
	return e.segment.readBody(e.offset, e.size)
}

// Failed puts a batch back that could not be published.
func (s *Spool) Requeue(b *Batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.usage.Requeue(b.entries)
}

// Republish has everything unsettled published again.
func (s *Spool) Republish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.usage.Republish()
	s.wakePublisher()
}

// Oldest is when the oldest unsettled request finished; zero if there is none.
func (s *Spool) OldestUnsettled() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	var oldest time.Time
	s.usage.EachOldest(func(e *entry) {
		if due := time.UnixMilli(e.finishedMS); oldest.IsZero() || due.Before(oldest) {
			oldest = due
		}
	})
	return oldest
}
