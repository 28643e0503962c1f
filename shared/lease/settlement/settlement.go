package settlement

import (
	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

// Verdict is what becomes of a usage event.
type Outcome uint8

// The verdicts.
const (
	// Faulty events can never be settled, and go into quarantine.
	Invalid Outcome = iota
	// Fresh events are charged.
	Inserted
	// Repeated events were settled before, and change nothing.
	Duplicate
	// Altered events contradict what was settled of the same request, and go into quarantine.
	Conflicting
)

// Charge is a usage event as far as money goes.
type Charge struct {
	Request     [16]byte
	Fingerprint [32]byte
	Session     wire.SessionID
	Cost        int64
	// Pools are those that the cost comes out of.
	Pools [2]wire.PoolID
	// Faulty marks an event that cannot be settled.
	Invalid bool
}

// Settlement decides what becomes of the events of one transaction. Whether a
// request was settled before is known only to the table of usage: Candidates
// are offered to it, Judge takes in what it took.
type Batch struct {
	Charges  []Charge
	Outcomes []Outcome
}

// NewSettlement returns the Settlement of a batch.
func NewBatch(charges []Charge) *Batch {
	return &Batch{charges, make([]Outcome, len(charges))}
}

// Candidates are the events to be offered to the table of usage: the first one
// of each request.
func (s *Batch) Candidates() []int {
	var candidates []int
	seen := map[[16]byte]bool{}
	for i, c := range s.Charges {
		if c.Invalid || seen[c.Request] {
			continue
		}
		seen[c.Request] = true
		candidates = append(candidates, i)
	}
	return candidates
}

// Took notes the requests that the table of usage did not hold before, and
// returns the indices of their events, which are fresh.
func (s *Batch) MarkInserted(requests map[[16]byte]bool) []int {
	var fresh []int
	for _, i := range s.Candidates() {
		if requests[s.Charges[i].Request] {
			s.Outcomes[i] = Inserted
			fresh = append(fresh, i)
		}
	}
	return fresh
}

// Doubtful are the events whose requests were settled before, if only by an
// event before them: whether they say the same is to be looked up.
func (s *Batch) Unresolved() []int {
	var doubtful []int
	for i, c := range s.Charges {
		if !c.Invalid && s.Outcomes[i] != Inserted {
			doubtful = append(doubtful, i)
		}
	}
	return doubtful
}

// Compare judges the doubtful events by the fingerprints of what is settled.
func (s *Batch) ResolveDuplicates(settled map[[16]byte][32]byte) {
	for _, i := range s.Unresolved() {
		c := &s.Charges[i]
		s.Outcomes[i] = Conflicting
		if known, ok := settled[c.Request]; ok && known == c.Fingerprint {
			s.Outcomes[i] = Duplicate
		}
	}
}

// Post charges the fresh events. Sessions that are missing or closed are
// charged late.
func (s *Batch) ApplyCharges(b *allocator.Allocator, tenures map[wire.SessionID]*session.Record) {
	for i, c := range s.Charges {
		if s.Outcomes[i] != Inserted {
			continue
		}
		t := tenures[c.Session]
		for _, pool := range c.Pools {
			b.Charge(c.Session, t == nil || !t.HoldsLeases(), pool, c.Cost)
		}
	}
}
