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
