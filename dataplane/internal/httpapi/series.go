package httpapi

import (
	"maps"
	"sync/atomic"
)

// series keeps what belongs to labels that were seen before: a vector of
// metrics takes several times as long to find it, which a request would pay for
// again and again. There are few, as no label is anything that a client can
// invent. It is safe for concurrent use.
type series[K comparable, V any] struct {
	// find asks the vector.
	find func(K) V
	// seen is replaced when something new is seen, never changed.
	seen atomic.Pointer[map[K]V]
}

func newSeries[K comparable, V any](find func(K) V) *series[K, V] {
	s := &series[K, V]{find: find}
	s.seen.Store(&map[K]V{})
	return s
}

func (s *series[K, V]) of(labels K) V {
	seen := s.seen.Load()
	if v, ok := (*seen)[labels]; ok {
		return v
	}
	v := s.find(labels)
	more := maps.Clone(*seen)
	more[labels] = v
	s.seen.CompareAndSwap(seen, &more) // else somebody else was first, and this one is found again
	return v
}
