package spool

import (
	"fmt"
	"testing"
)

// A request takes one write before its provider is called and one before its
// answer ends, however many events wait for publication.
func TestRequestTakesTwoWrites(t *testing.T) {
	t.Parallel()
	s, d, _ := setup(t)
	for i := range 50 {
		before := d.writes
		id := fmt.Sprintf("req_%d", i)
		u := start(t, s, 1, id)
		if got := d.writes - before; got != 1 {
			t.Errorf("AppendStarted took %d writes; want 1", got)
		}
		u.AppendFinished(usage(1, id))
		if got := d.writes - before; got != 2 {
			t.Errorf("the request took %d writes; want 2", got)
		}
	}
}
