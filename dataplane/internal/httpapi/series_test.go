package httpapi

import (
	"sync"
	"sync/atomic"
	"testing"
)

// What belongs to labels is found, whoever else looks for whatever else, and is
// not looked for again.
func TestSeries(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	var vector sync.Map // a vector returns the same for the same
	s := newSeries(func(labels string) *string {
		asked.Add(1)
		v, _ := vector.LoadOrStore(labels, &labels)
		return v.(*string)
	})
	names := []string{"a", "b", "c", "d"}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for _, name := range names {
				if got := s.of(name); *got != name {
					t.Errorf("got %s; want %s", *got, name)
				}
			}
		})
	}
	all.Wait()
	for _, name := range names { // each of which may have been overtaken before
		s.of(name)
	}
	before := asked.Load()
	s.of("c")
	if asked.Load() != before {
		t.Error("what is known was asked for")
	}
}
