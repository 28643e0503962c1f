package settlement

import (
	"slices"

	"modelgateway/shared/event"
	"modelgateway/shared/wire"
)

// IntervalSet is a set of sequence numbers: inclusive ranges in ascending order
// that neither overlap nor touch.
type IntervalSet [][2]int64

// find returns the index of the range that contains a number, or else of the
// first range above it.
func (s IntervalSet) find(n int64) (i int, found bool) {
	return slices.BinarySearchFunc(s, n, func(r [2]int64, n int64) int {
		switch {
		case r[1] < n:
			return -1
		case r[0] > n:
			return 1
		default:
			return 0
		}
	})
}

// Contains reports whether a number is in the set.
func (s IntervalSet) Contains(n int64) bool {
	_, found := s.find(n)
	return found
}

// Add returns the set with one more number. It may change s.
func (s IntervalSet) Add(n int64) IntervalSet {
	i, found := s.find(n)
	if found {
		return s
	}

	before, after := i > 0 && s[i-1][1] == n-1, i < len(s) && s[i][0] == n+1
	switch {
	case before && after:
		s[i-1][1] = s[i][1]
		return slices.Delete(s, i, i+1)
	case before:
		s[i-1][1] = n
	case after:
		s[i][0] = n
	default:
		return slices.Insert(s, i, [2]int64{n, n})
	}

	return s
}

// Count returns how many numbers the set has.
func (s IntervalSet) Count() (count int64) {
	for _, r := range s {
		count += r[1] - r[0] + 1
	}
	return count
}

// Settled returns the message with the settled events of a session: the
// watermark and the ranges beyond it.
func (s IntervalSet) Settled(session wire.SessionID) event.Settled {
	m := event.Settled{V: event.Version, Session: int64(session), Beyond: s}
	if len(s) > 0 && s[0][0] == 1 {
		m.Watermark, m.Beyond = s[0][1], s[1:]
	}
	return m
}
