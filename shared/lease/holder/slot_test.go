package holder

import (
	"testing"

	"modelgateway/shared/wire"
)

// A request whose client has left continues without its slot, which is given back once.
func TestSlotIsReleasedOnceBeforeTheEnd(t *testing.T) {
	t.Parallel()
	h := NewHolder(1, "boot", "acc")
	needs := func() []wire.Need {
		return []wire.Need{{Pool: 1, Kind: wire.Balance, Amount: 10}, {Pool: 2, Kind: wire.Slots, Amount: 1}}
	}
	first := h.Reserve(needs())
	request := h.NextRequest()
	h.HandleResponse(&wire.LeaseResponse{
		Status:    wire.Done,
		Number:    request.Number,
		Decisions: []wire.Decision{{Granted: true}},
		Leases:    []wire.LeaseState{{Pool: 1, Granted: 30, Allotment: 20}, {Pool: 2, Granted: 1, Allotment: 1}},
	})
	if !first.Granted() {
		t.Fatal("the first request is not granted")
	}
	for range 2 { // the second time has no effect
		h.ReleaseSlot(first)
		if balance, slots := h.Reserved(1), h.Reserved(2); balance != 10 || slots != 0 {
			t.Errorf("%d of the balance and %d slots are reserved; want 10 and none", balance, slots)
		}
	}
	if h.Release(first, 7); h.Reserved(1) != 0 || h.Reserved(2) != 0 {
		t.Errorf("%d of the balance and %d slots are reserved after the end", h.Reserved(1), h.Reserved(2))
	}
	h.ReleaseSlot(first)
	if slots := h.pools[2]; slots.granted-slots.returned-slots.idle() != 0 || slots.running != 0 {
		t.Errorf("got %+v; want every slot idle or returned", slots)
	}
}

// A request may need slots of its account and of its key. Both are given back, and each may be awaited.
func TestAllSlotsAreReleasedBeforeTheEnd(t *testing.T) {
	t.Parallel()
	h := NewHolder(1, "boot", "acc")
	needs := func() []wire.Need {
		return []wire.Need{{Pool: 1, Kind: wire.Balance, Amount: 1}, {Pool: 2, Kind: wire.Slots, Amount: 1}, {Pool: 3, Kind: wire.Slots, Amount: 1}}
	}
	first := h.Reserve(needs())
	request := h.NextRequest()
	second := h.Reserve(needs())
	h.HandleResponse(&wire.LeaseResponse{
		Status:    wire.Done,
		Number:    request.Number,
		Decisions: []wire.Decision{{Granted: true}},
		Leases: []wire.LeaseState{
			{Pool: 1, Generation: 1, Granted: 9, Allotment: 8},
			{Pool: 2, Generation: 1, Granted: 1, Allotment: 1},
			{Pool: 3, Generation: 1, Granted: 1, Allotment: 1},
		},
	})
	admitted := h.ReleaseSlot(first)
	if !first.Granted() || len(admitted) != 1 || admitted[0] != second {
		t.Errorf("admitted %v; want the request that waits for both slots", admitted)
	}
	h.Release(first, 0)
	h.Release(second, 0)
	if account, key := h.Reserved(2), h.Reserved(3); account != 0 || key != 0 {
		t.Errorf("%d slots of the account and %d of the key are reserved after the end", account, key)
	}
}
