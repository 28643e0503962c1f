package httpapi

import (
	"maps"
	"sync/atomic"
)

// childCache caches the children of a metric vector by label values: the vector's own lookup takes several times as
// long and would run for every request. The cache never shrinks; clients cannot invent label values, so it stays small.
// It is safe for concurrent use.
type childCache[K comparable, V any] struct {
	// lookup returns the child from the vector.
	lookup func(K) V
	// known is replaced by an extended copy when new labels appear, and never modified.
	known atomic.Pointer[map[K]V]
}

func newChildCache[K comparable, V any](lookup func(K) V) *childCache[K, V] {
	c := &childCache[K, V]{lookup: lookup}
	c.known.Store(&map[K]V{})
	return c
}

func (c *childCache[K, V]) of(labels K) V {
	known := c.known.Load()
	if v, ok := (*known)[labels]; ok {
		return v
	}
	v := c.lookup(labels)
	extended := maps.Clone(*known)
	extended[labels] = v
	c.known.CompareAndSwap(known, &extended) // if another goroutine has replaced the map meanwhile, the next call looks the child up again
	return v
}
