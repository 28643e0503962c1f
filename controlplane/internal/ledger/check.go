package ledger

import "time"

// Report is the outcome of a self-check: the invariants that tie the ledger,
// the pools and the usage records together, all read in one snapshot.
type Report struct {
	At time.Time
	// Took is how long the reading took.
	Took   time.Duration
	Checks []Check
}

// OK tells whether every invariant holds.
func (r *Report) OK() bool {
	for _, c := range r.Checks {
		if c.Differing > 0 {
			return false
		}
	}
	return true
}

// Check is one invariant.
type Check struct {
	// Name identifies the invariant, such as "pool_conservation".
	Name string
	// Compared is how many rows were looked at, Differing how many break the invariant.
	Compared  int64
	Differing int64
	// First is the first differing row; nil if there is none.
	First *Difference
}

// Difference is a row that breaks an invariant.
type Difference struct {
	// Row names it, such as "pool 17" or "account acc_…".
	Row string
	// Want and Got are what should be equal, in nano-units (or counts, for slots).
	Want int64
	Got  int64
}
