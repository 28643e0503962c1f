package meter

import (
	"sync"
	"sync/atomic"
	"testing"
)

func TestChildCacheLooksKnownLabelsUpOnlyOnce(t *testing.T) {
	t.Parallel()
	var lookups atomic.Int64
	var vector sync.Map // like a metric vector, it returns the same child for the same labels
	c := NewChildCache(func(labels string) *string {
		lookups.Add(1)
		v, _ := vector.LoadOrStore(labels, &labels)
		return v.(*string)
	})
	names := []string{"a", "b", "c", "d"}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for _, name := range names {
				if got := c.Of(name); *got != name {
					t.Errorf("got %s; want %s", *got, name)
				}
			}
		})
	}
	all.Wait()
	for _, name := range names { // concurrent calls may have replaced each other's entries
		c.Of(name)
	}
	before := lookups.Load()
	c.Of("c")
	if lookups.Load() != before {
		t.Error("the vector was called again for labels in the cache")
	}
}
