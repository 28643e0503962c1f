package lease

// Verdict is what becomes of a usage event.
type Verdict uint8

// The verdicts.
const (
	// Faulty events can never be settled, and go into quarantine.
	Faulty Verdict = iota
	// Fresh events are charged.
	Fresh
	// Repeated events were settled before, and change nothing.
	Repeated
	// Altered events contradict what was settled of the same request, and go into quarantine.
	Altered
)

// Charge is a usage event as far as money goes.
type Charge struct {
	Request     [16]byte
	Fingerprint [32]byte
	Session     SessionID
	Cost        int64
	// Pools are those that the cost comes out of.
	Pools [2]PoolID
	// Faulty marks an event that cannot be settled.
	Faulty bool
}

// Settlement decides what becomes of the events of one transaction. Whether a
// request was settled before is known only to the table of usage: Candidates
// are offered to it, Judge takes in what it took.
type Settlement struct {
	Charges  []Charge
	Verdicts []Verdict
}

// NewSettlement returns the Settlement of a batch.
func NewSettlement(charges []Charge) *Settlement {
	return &Settlement{charges, make([]Verdict, len(charges))}
}

// Candidates are the events to be offered to the table of usage: the first one
// of each request.
func (s *Settlement) Candidates() []int {
	var candidates []int
	seen := map[[16]byte]bool{}
	for i, c := range s.Charges {
		if c.Faulty || seen[c.Request] {
			continue
		}
		seen[c.Request] = true
		candidates = append(candidates, i)
	}
	return candidates
}

// Took notes the requests that the table of usage did not hold before, and
// returns the indices of their events, which are fresh.
func (s *Settlement) Took(requests map[[16]byte]bool) []int {
	var fresh []int
	for _, i := range s.Candidates() {
		if requests[s.Charges[i].Request] {
			s.Verdicts[i] = Fresh
			fresh = append(fresh, i)
		}
	}
	return fresh
}

// Doubtful are the events whose requests were settled before, if only by an
// event before them: whether they say the same is to be looked up.
func (s *Settlement) Doubtful() []int {
	var doubtful []int
	for i, c := range s.Charges {
		if !c.Faulty && s.Verdicts[i] != Fresh {
			doubtful = append(doubtful, i)
		}
	}
	return doubtful
}

// Compare judges the doubtful events by the fingerprints of what is settled.
func (s *Settlement) Compare(settled map[[16]byte][32]byte) {
	for _, i := range s.Doubtful() {
		c := &s.Charges[i]
		s.Verdicts[i] = Altered
		if known, ok := settled[c.Request]; ok && known == c.Fingerprint {
			s.Verdicts[i] = Repeated
		}
	}
}

// Post charges the fresh events. Sessions that are missing or closed are
// charged late.
func (s *Settlement) Post(b *Book, tenures map[SessionID]*Tenure) {
	for i, c := range s.Charges {
		if s.Verdicts[i] != Fresh {
			continue
		}
		t := tenures[c.Session]
		for _, pool := range c.Pools {
			b.Charge(c.Session, t == nil || !t.Charged(), pool, c.Cost)
		}
	}
}
