package spool

import (
	"fmt"
	"testing"
)

// The records of a request, one before its provider is called and one before its
// answer ends, share a write with those of others.
func TestRequestTakesNoWriteOfItsOwn(t *testing.T) {
	t.Parallel()
	d := &fakeDisk{buffer: bufferBytes}
	s, _ := setupOn(t, d)
	s.cfg.MaxEvents = 10_000
	writes, bytes := d.writes, s.Bytes()
	for i := range 1000 {
		id := fmt.Sprintf("req_%d", i)
		start(t, s, 1, id).AppendFinished(usage(1, id))
	}
	want := int(s.Bytes()-bytes)*10/(bufferBytes*9) + 1
	if got := d.writes - writes; got == 0 || got > want {
		t.Errorf("1000 requests took %d writes; want 1 to %d", got, want)
	}
}

func TestRequestTakesTwoWritesWithoutABuffer(t *testing.T) {
	t.Parallel()
	s, d, _ := setup(t)
	for i := range 50 {
		before := d.writes
		id := fmt.Sprintf("req_%d", i)
		start(t, s, 1, id).AppendFinished(usage(1, id))
		if got := d.writes - before; got != 2 {
			t.Errorf("the request took %d writes; want 2", got)
		}
	}
}
