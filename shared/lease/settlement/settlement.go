// Package settlement decides which usage events of a batch are charged. Every
// request is charged at most once, even if events are delivered again, late or
// out of order (invariant I3).
package settlement

import (
	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

// Outcome says how a usage event was settled.
type Outcome uint8

// The outcomes.
const (
	// Invalid events can never be settled; they go into quarantine.
	Invalid Outcome = iota
	// Inserted events are new and are charged.
	Inserted
	// Duplicate events were settled before and have no effect.
	Duplicate
	// Conflicting events contradict the settled event of the same request; they go into quarantine.
	Conflicting
)

// Charge is the part of a usage event that the decisions of settlement depend
// on.
type Charge struct {
	Request     [16]byte
	Fingerprint [32]byte
	Session     wire.SessionID
	Cost        int64
	// Pools are the pools that the cost is taken from: the balance, the limit of the key, and the windows of limits that the request
	// has reserved units of.
	Pools []wire.PoolID
	// Invalid marks an event that cannot be settled.
	Invalid bool
}

// Batch decides the events of one transaction. Whether a request was settled
// before is found out by inserting the Candidates into the table of usage
// records; MarkInserted records which of them were new.
type Batch struct {
	Charges  []Charge
	Outcomes []Outcome

	candidates []int
}

// NewBatch returns the Batch of the given charges.
func NewBatch(charges []Charge) *Batch {
	return &Batch{charges, make([]Outcome, len(charges)), firstOfEachRequest(charges)}
}

func firstOfEachRequest(charges []Charge) []int {
	first := make([]int, 0, len(charges))
	seen := make(map[[16]byte]struct{}, len(charges))
	for i := range charges {
		c := &charges[i]
		if c.Invalid {
			continue
		}
		if _, repeated := seen[c.Request]; !repeated {
			seen[c.Request] = struct{}{}
			first = append(first, i)
		}
	}
	return first
}

// Candidates returns the indices of the events to be inserted: the first one of
// each request.
func (s *Batch) Candidates() []int { return s.candidates }

// MarkInserted records that requests are new in the table, and returns the
// indices of their events.
func (s *Batch) MarkInserted(requests map[[16]byte]bool) []int {
	var inserted []int
	for _, i := range s.candidates {
		if requests[s.Charges[i].Request] {
			s.Outcomes[i] = Inserted
			inserted = append(inserted, i)
		}
	}
	return inserted
}

// Unresolved returns the indices of the events whose requests were settled by an
// earlier event, perhaps of this batch. ResolveDuplicates compares them with the
// settled event.
func (s *Batch) Unresolved() []int {
	var unresolved []int
	for i := range s.Charges {
		if !s.Charges[i].Invalid && s.Outcomes[i] != Inserted {
			unresolved = append(unresolved, i)
		}
	}
	return unresolved
}

// ResolveDuplicates compares the unresolved events with the fingerprints of the
// settled ones.
func (s *Batch) ResolveDuplicates(settled map[[16]byte][32]byte) {
	for _, i := range s.Unresolved() {
		c := &s.Charges[i]
		s.Outcomes[i] = Conflicting
		if known, ok := settled[c.Request]; ok && known == c.Fingerprint {
			s.Outcomes[i] = Duplicate
		}
	}
}

// ApplyCharges charges the inserted events. Charges of unknown or closed sessions
// are late.
func (s *Batch) ApplyCharges(a *allocator.Allocator, records map[wire.SessionID]*session.Record) {
	for i := range s.Charges {
		if s.Outcomes[i] != Inserted {
			continue
		}
		c := &s.Charges[i]
		record := records[c.Session]
		for _, pool := range c.Pools {
			a.Charge(c.Session, record == nil || !record.HoldsLeases(), pool, c.Cost)
		}
	}
}
