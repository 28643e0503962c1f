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

// Closing the last use of a removed file frees its blocks, for which a disk takes up to tens of milliseconds. No request may wait
// for that, nor the settlement that all requests wait for.
func TestRequestsDoNotWaitForTheFilesOfRemovedSegments(t *testing.T) {
	t.Parallel()
	d := &fakeDisk{buffer: bufferBytes}
	s, cfg := setupOn(t, d)
	s.cfg.SegmentBytes = 4 << 10
	for i := range 90 {
		id := fmt.Sprintf("req_%d", i)
		start(t, s, 1, id).AppendFinished(usage(1, id))
	}
	settle(s, 1, 90)
	made := int(s.nextSegment) - 1
	if left := len(segmentFiles(t, cfg.Dir)); made < 5 || left != 1 {
		t.Fatalf("%d of %d segments are left; want 1 of several", left, made)
	}
	if d.closed != 0 {
		t.Errorf("%d files were closed by the settlement", d.closed)
	}
	if s.CloseRemoved(); d.closed != made-1 {
		t.Errorf("%d files were closed; want those of the %d removed segments", d.closed, made-1)
	}
	if err := s.Close(); err != nil || d.closed != made {
		t.Errorf("%d of %d files are closed at the end, and Close returned %v", d.closed, made, err)
	}
}
