package ledger

import "time"

// Report is the result of a ledger check: the invariants between ledger, pools and usage records,
// read in one snapshot.
type Report struct {
	At time.Time
	// Took is the duration of the check.
	Took   time.Duration
	Checks []Check
}

// OK reports whether every invariant holds.
func (r *Report) OK() bool {
	for _, c := range r.Checks {
		if c.Differing > 0 {
			return false
		}
	}
	return true
}

// Progress is called by a check when it has done some of its steps.
type Progress func(done, total int64)

// Report calls the function unless it is nil.
func (p Progress) Report(done, total int64) {
	if p != nil {
		p(done, total)
	}
}

// Check is one invariant.
type Check struct {
	// Name identifies the invariant, such as "pool_conservation".
	Name string
	// Compared is the number of rows that were compared, Differing the number of rows that violate the invariant.
	Compared  int64
	Differing int64
	// First is the first violating row; nil if there is none.
	First *Difference
}

// Difference is a row that violates an invariant.
type Difference struct {
	// Row identifies the row, such as "pool 17" or "account acc_…".
	Row string
	// Want and Got should be equal. They are in nano-units, or counts for slots.
	Want int64
	Got  int64
}
