package providersim

import (
	"context"
	"maps"
	"strconv"
	"sync"
)

// Stats are counters since New or Reset.
type Stats struct {
	Requests           int64            `json:"requests"`
	InFlight           int64            `json:"in_flight"`
	Streams            int64            `json:"streams"`
	Events             int64            `json:"events"`
	Finished           int64            `json:"finished"`
	ClientGone         int64            `json:"client_gone"`
	ByOutcome          map[string]int64 `json:"by_outcome"`
	ByStatus           map[string]int64 `json:"by_status"`
	ByFormat           map[Format]int64 `json:"by_format"`
	Usage              Counts           `json:"usage"` // sum of all reported counts
	Videos             int              `json:"videos"`
	JournalEntries     int              `json:"journal_entries"`
	JournalDropped     int64            `json:"journal_dropped"`
	JournalWriteErrors int64            `json:"journal_write_errors"`
}

type stats struct {
	mu   sync.Mutex
	s    Stats
	idle chan struct{} // closed when InFlight becomes zero; nil without a waiter
}

func (s *stats) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.s = Stats{
		InFlight:  s.s.InFlight, // these requests are still running
		ByOutcome: make(map[string]int64),
		ByStatus:  make(map[string]int64),
		ByFormat:  make(map[Format]int64),
	}
}

func (s *stats) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.s.Requests++
	s.s.InFlight++
}

func (s *stats) end(e *Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.s.InFlight--
	s.s.ByOutcome[e.Outcome]++
	s.s.ByStatus[strconv.Itoa(e.Status)]++
	s.s.ByFormat[e.Format]++
	s.s.Events += e.EventsSent
	if e.Stream {
		s.s.Streams++
	}
	if e.Finished {
		s.s.Finished++
	}
	if e.ClientGone {
		s.s.ClientGone++
	}
	if e.Counts != nil {
		s.s.Usage = s.s.Usage.Add(*e.Counts)
	}

	if s.s.InFlight == 0 && s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
}

func (s *stats) snapshot() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.s
	c.ByOutcome, c.ByStatus, c.ByFormat = copied(c.ByOutcome), copied(c.ByStatus), copied(c.ByFormat)
	return c
}

func (s *stats) waitIdle(ctx context.Context) error {
	s.mu.Lock()
	if s.s.InFlight == 0 {
		s.mu.Unlock()
		return nil
	}

	if s.idle == nil {
		s.idle = make(chan struct{})
	}

	idle := s.idle
	s.mu.Unlock()

	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func copied[K comparable](m map[K]int64) map[K]int64 {
	c := make(map[K]int64, len(m))
	maps.Copy(c, m)
	return c
}
