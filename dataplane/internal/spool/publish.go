package spool

import (
	"encoding/json"
	"log/slog"
	"time"
)

// maxBatchBytes bounds the events of a batch, well below the largest message
// that NATS accepts.
const maxBatchBytes = 512 << 10

// Batch has the events of one message of the usage stream. All are of one
// session.
type Batch struct {
	Session int64
	Events  []json.RawMessage
	entries []*entry
	size    int // of all events, in bytes
}

// Wake returns a channel that receives when there may be an event to publish.
func (s *Spool) Wake() <-chan struct{} { return s.wake }

func (s *Spool) wakePublisher() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// clearWake empties the channel of Wake. It is called before NextBatch, which then has all events that the channel
// announced.
func (s *Spool) clearWake() {
	select {
	case <-s.wake:
	default:
	}
}

// NextBatch returns the next batch of at most limit events, or nil when no event
// is due. If the last write to the disk failed, it tries another one first.
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
			s.log.Error("usage event cannot be read from the spool", slog.Any("error", err), slog.Int64("session", int64(e.Session)))
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

// loadBody returns the event as JSON, from memory or from its segment.
func (e *entry) loadBody() ([]byte, error) {
	if e.record != nil {
		return e.record[prefixBytes:], nil
	}
	return e.segment.readBody(e.offset, e.size)
}

// Requeue queues the events of a batch again that could not be published.
func (s *Spool) Requeue(b *Batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.usage.Requeue(b.entries)
}

// Republish queues every unsettled event for publication again.
func (s *Spool) Republish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.usage.Republish()
	s.wakePublisher()
}

// HoldUsage implements session.Usage: while settlement is behind, unsettled
// events are seldom published again.
func (s *Spool) HoldUsage(held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.usage.Hold(held)
}

// UnsettledAge returns how long ago the request of the oldest unsettled event finished; 0 if every event is settled.
func (s *Spool) UnsettledAge() time.Duration {
	oldest := s.OldestUnsettled()
	if oldest.IsZero() {
		return 0
	}
	return max(time.Since(oldest), time.Millisecond)
}

// OldestUnsettled returns when the request of the oldest unsettled event
// finished, or the zero time if every event is settled.
func (s *Spool) OldestUnsettled() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	var oldest time.Time
	s.usage.EachOldest(func(e *entry) {
		if finished := time.UnixMilli(e.finishedMS); oldest.IsZero() || finished.Before(oldest) {
			oldest = finished
		}
	})
	return oldest
}
