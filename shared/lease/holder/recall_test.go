package holder

import (
	"fmt"
	"testing"

	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/wire"
)

// oneSlot returns an allocator with a single slot, which a running request of
// session 1 holds.
func oneSlot(t *testing.T) (b *allocator.Allocator, first *Holder, running *Waiter) {
	t.Helper()
	b = allocator.New()
	b.Pools[3] = &allocator.Pool{ID: 3, Kind: wire.Slots, Central: true, Generation: 1, Total: 1, Free: 1}
	first = NewHolder(1, "b", "acc")
	running = first.Reserve([]wire.Need{need(3, wire.Slots, 1)})
	response, _ := b.Decide(first.NextRequest(), &allocator.PendingRequest{})
	if first.HandleResponse(&response); !running.Granted() {
		t.Fatal("the slot is not granted")
	}
	return b, first, running
}

// A Return can be on its way for longer than a lease request waits. Before a
// request is refused, every session that holds units must confirm that they are
// used.
func TestRefusalWaitsForReturnsOnTheirWay(t *testing.T) {
	t.Parallel()
	for _, finished := range []bool{true, false} {
		t.Run(fmt.Sprint("finished: ", finished), func(t *testing.T) {
			t.Parallel()
			b, first, running := oneSlot(t)
			if finished {
				first.Release(running, 0)
				if first.NextReturn() == nil {
					t.Fatal("nothing is returned")
				} // and the Return is lost
				first.ret = nil
			}
			second := NewHolder(2, "b", "acc")
			waiter := second.Reserve([]wire.Need{need(3, wire.Slots, 1)})
			request, pending := second.NextRequest(), &allocator.PendingRequest{}
			response, decided := b.Decide(request, pending)
			if decided || response.Status != wire.Wait {
				t.Fatalf("got %+v, decided: %t; want a recall", response, decided)
			}
			for _, r := range b.ToRecall()[1] {
				first.HandleRecall(r.Pool, r.Generation)
			}
			b.ApplyReports(1, first.NextReturn().Reports)
			if response, decided = b.Decide(request, pending); !decided {
				t.Fatal("not decided although every session has answered")
			}
			if second.HandleResponse(&response); waiter.Granted() != finished || waiter.Refused() == finished {
				t.Errorf("got %+v", response)
			}
		})
	}
}

// One recall serves all lease requests that came before it, and none that came
// later.
func TestRecallServesAllEarlierRequests(t *testing.T) {
	t.Parallel()
	b, first, _ := oneSlot(t)
	var requests [3]*wire.LeaseRequest
	var pending [3]allocator.PendingRequest
	for i := range requests {
		h := NewHolder(wire.SessionID(i+2), "b", "acc")
		h.Reserve([]wire.Need{need(3, wire.Slots, 1)})
		requests[i] = h.NextRequest()
	}
	decide := func(i int, mayWait, want bool) {
		t.Helper()
		pending[i].MayWait = mayWait
		if _, decided := b.Decide(requests[i], &pending[i]); decided != want {
			t.Errorf("request %d, may wait: %t: decided: %t", i, mayWait, decided)
		}
	}
	answer := func() {
		t.Helper()
		first.HandleRecall(3, b.Pools[3].Generation)
		b.ApplyReports(1, first.NextReturn().Reports)
		first.ReturnDelivered(nil)
	}
	decide(0, true, false)
	decide(1, true, false)
	decide(0, false, false) // the recall begins
	decide(2, true, false)  // and another request comes
	answer()
	decide(1, false, true)
	decide(0, false, true)
	decide(2, true, false)
	decide(2, false, false)
	answer()
	decide(2, false, true)
}

// A lease request reports the units of its own session.
func TestRequestingSessionIsNotRecalled(t *testing.T) {
	t.Parallel()
	b, first, _ := oneSlot(t)
	waiter := first.Reserve([]wire.Need{need(3, wire.Slots, 1)})
	response, decided := b.Decide(first.NextRequest(), &allocator.PendingRequest{})
	if first.HandleResponse(&response); !decided || !waiter.Refused() {
		t.Errorf("got %+v, decided: %t; want a refusal at once", response, decided)
	}
}

// An answer to a recall does not count if a grant was on its way. When the grant
// arrives, the recall is answered again.
func TestRecallIsAnsweredAgainAfterAGrant(t *testing.T) {
	t.Parallel()
	b, first, _ := oneSlot(t)
	b.Pools[3].Total, b.Pools[3].Free = 2, 1
	first.Reserve([]wire.Need{need(3, wire.Slots, 1)})
	request := first.NextRequest()
	response, _ := b.Decide(request, &allocator.PendingRequest{}) // on its way
	b.Pools[3].Generation++
	first.HandleRecall(3, b.Pools[3].Generation)
	b.ApplyReports(1, first.NextReturn().Reports)
	first.ReturnDelivered(nil)
	if got := b.Leases[allocator.LeaseKey{Pool: 3, Session: 1}].RecalledGeneration; got != 1 {
		t.Fatalf("the first answer counts: generation %d", got)
	}
	first.HandleResponse(&response)
	again := first.NextReturn()
	if again == nil {
		t.Fatal("there is no second answer")
	}
	if b.ApplyReports(1, again.Reports); b.Leases[allocator.LeaseKey{Pool: 3, Session: 1}].RecalledGeneration != 2 {
		t.Error("the second answer does not count")
	}
	if first.ReturnDelivered(nil); first.NextReturn() != nil {
		t.Error("there is a third answer")
	}
}
