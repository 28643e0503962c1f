package meter

import (
	"iter"
	"maps"
	"sync/atomic"
)

// ChildCache caches the children of a metric vector by label values: the vector's own lookup takes several times as
// long and would run for every request. The cache never shrinks; clients cannot invent label values, so it stays small.
// It is safe for concurrent use.
type ChildCache[K comparable, V any] struct {
	// lookup returns the child from the vector.
	lookup func(K) V
	// known is replaced by an extended copy when new labels appear, and never modified.
	known atomic.Pointer[map[K]V]
}

// NewChildCache returns a cache of a vector whose lookup this is.
func NewChildCache[K comparable, V any](lookup func(K) V) *ChildCache[K, V] {
	c := &ChildCache[K, V]{lookup: lookup}
	c.known.Store(&map[K]V{})
	return c
}

// Of returns the child with the label values. All calls with the same ones return the same child.
func (c *ChildCache[K, V]) Of(labels K) V {
	for {
		known := c.known.Load()
		if v, ok := (*known)[labels]; ok {
			return v
		}
		extended := maps.Clone(*known)
		extended[labels] = c.lookup(labels)
		c.known.CompareAndSwap(known, &extended) // if another goroutine has replaced the map meanwhile, its copy is extended
	}
}

// All returns the children so far, by label values.
func (c *ChildCache[K, V]) All() iter.Seq2[K, V] { return maps.All(*c.known.Load()) }
