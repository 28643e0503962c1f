package spool

import (
	"fmt"
	"testing"
)

// A request costs two writes, one before its provider is called and one before
// its answer ends, whatever else waits to be published.
func TestWritesOfARequest(t *testing.T) {
	t.Parallel()
	s, d, _ := setup(t)
	for i := range 50 {
		before := d.writes
		id := fmt.Sprintf("req_%d", i)
		p := start(t, s, 1, id)
		if d.writes != before+1 {
			t.Errorf("the start took %d writes", d.writes-before)
		}
		if p.AppendFinished(usage(1, id)); d.writes != before+2 {
			t.Errorf("the request took %d writes", d.writes-before)
		}
	}
}
