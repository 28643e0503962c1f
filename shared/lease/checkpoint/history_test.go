package checkpoint

import (
	"slices"
	"testing"

	"modelgateway/shared/wire"
)

func TestHistoryHasTheChangesSinceTheLastResponseButOne(t *testing.T) {
	t.Parallel()
	var none ChangeHistory
	none.Synced(3)
	if _, ok := none.Known(7); ok {
		t.Error("known without a session")
	}
	h := NewHistory(8)
	h.Applied(wire.KeyChange{Revision: 9})
	h.Synced(10)
	h.Applied(wire.KeyChange{Revision: 11})
	h.Synced(12)
	h.Applied(wire.KeyChange{Revision: 13})
	known, ok := h.Known(13)
	if !ok || known.Floor != 10 || known.Applied != 13 || !slices.Equal(revisions(known), []int64{11, 13}) {
		t.Errorf("known: %+v, %v; want floor 10, changes 11 and 13, applied 13", known, ok)
	}
	resumed := ResumeHistory(known)
	resumed.Applied(wire.KeyChange{Revision: 15})
	if again, ok := resumed.Known(0); !ok || again.Floor != 10 || again.Applied != 13 || !slices.Equal(revisions(again), []int64{11, 13, 15}) {
		t.Errorf("known after a restart: %+v; want what the earlier process knew, and change 15", again)
	}
}

// A change may be applied before the response that does not have it yet.
func TestHistoryKeepsChangesBeyondTheFloor(t *testing.T) {
	t.Parallel()
	h := NewHistory(1)
	h.Applied(wire.KeyChange{Revision: 7})
	for revision := range int64(6) {
		h.Synced(revision + 1)
		if known, _ := h.Known(1); !slices.Contains(revisions(known), 7) {
			t.Fatalf("after a response with revision %d, change 7 is not known: %+v", revision+1, known)
		}
	}
	h.Synced(7)
	h.Synced(8)
	if known, _ := h.Known(8); known.Floor != 7 || len(known.Changes) > 0 {
		t.Errorf("known: %+v; want floor 7, which includes the change", known)
	}
}

func TestHistoryWithTooManyChangesIsNotKept(t *testing.T) {
	t.Parallel()
	h := NewHistory(1)
	for i := range int64(10_001) {
		h.Applied(wire.KeyChange{Revision: 2 + i})
	}
	if _, ok := h.Known(2); ok {
		t.Error("known although there are more changes than are kept")
	}
	h.Synced(20_000)
	h.Synced(20_001)
	if known, ok := h.Known(20_001); !ok || known.Floor != 20_000 {
		t.Errorf("known: %+v, %v; want it known again from 20000 on", known, ok)
	}
}

func revisions(known KnownChanges) (list []int64) {
	for _, c := range known.Changes {
		list = append(list, c.Revision)
	}
	return list
}
