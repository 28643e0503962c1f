package holder

import (
	"fmt"
	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/wire"
	"testing"
)

// oneSlot is a Book with a single slot, which session 1 has at work.
func oneSlot(t *testing.T) (b *allocator.Allocator, first *Holder, running *Waiter) {
	t.Helper()
	b = allocator.New()
	b.Pools[3] = &allocator.Pool{ID: 3, Kind: wire.Slots, Central: true, Generation: 1, Total: 1, Free: 1}
	first = NewHolder(1, "b", "acc")
	running = first.Reserve([]wire.Need{need(3, wire.Slots, 1)})
	reply, _ := b.Decide(first.NextRequest(), &allocator.PendingRequest{})
	if first.HandleResponse(&reply); !running.Granted() {
		t.Fatal("the slot is not granted")
	}
	return b, first, running
}

// What has come back to a proxy may be on its way for longer than an op waits.
// Before a request is refused, whoever holds anything says that it is at work.
func TestRefusalAsksWhatIsOnItsWay(t *testing.T) {
	t.Parallel()
	for _, finished := range []bool{true, false} {
		t.Run(fmt.Sprint("finished: ", finished), func(t *testing.T) {
			t.Parallel()
			b, first, running := oneSlot(t)
			if finished {
				first.Release(running, 0)
				if first.NextReturn() == nil {
					t.Fatal("nothing is given back")
				} // and it is lost
				first.ret = nil
			}
			second := NewHolder(2, "b", "acc")
			ticket := second.Reserve([]wire.Need{need(3, wire.Slots, 1)})
			op, stay := second.NextRequest(), &allocator.PendingRequest{}
			reply, decided := b.Decide(op, stay)
			if decided || reply.Status != wire.Wait {
				t.Fatalf("got %+v, decided: %t; want a recall", reply, decided)
			}
			for _, r := range b.ToRecall()[1] {
				first.HandleRecall(r.Pool, r.Generation)
			}
			b.ApplyReports(1, first.NextReturn().Reports)
			if reply, decided = b.Decide(op, stay); !decided {
				t.Fatal("it waits although all have answered")
			}
			if second.HandleResponse(&reply); ticket.Granted() != finished || ticket.Refused() == finished {
				t.Errorf("got %+v", reply)
			}
		})
	}
}

// One recall does for all who came before it, and for nobody who came later.
func TestOneRecallDoesForAllWhoCameBefore(t *testing.T) {
	t.Parallel()
	b, first, _ := oneSlot(t)
	var ops [3]*wire.LeaseRequest
	var stays [3]allocator.PendingRequest
	for i := range ops {
		h := NewHolder(wire.SessionID(i+2), "b", "acc")
		h.Reserve([]wire.Need{need(3, wire.Slots, 1)})
		ops[i] = h.NextRequest()
	}
	look := func(i int, patient, want bool) {
		t.Helper()
		stays[i].MayWait = patient
		if _, decided := b.Decide(ops[i], &stays[i]); decided != want {
			t.Errorf("op %d, patient: %t: decided: %t", i, patient, decided)
		}
	}
	answer := func() {
		t.Helper()
		first.HandleRecall(3, b.Pools[3].Generation)
		b.ApplyReports(1, first.NextReturn().Reports)
		first.ReturnDelivered()
	}
	look(0, true, false)
	look(1, true, false)
	look(0, false, false) // the recall begins
	look(2, true, false)  // and one comes
	answer()
	look(1, false, true)
	look(0, false, true)
	look(2, true, false)
	look(2, false, false)
	answer()
	look(2, false, true)
}

// What the asking session holds itself it has told with the op.
func TestNobodyIsRecalledForItself(t *testing.T) {
	t.Parallel()
	b, first, _ := oneSlot(t)
	ticket := first.Reserve([]wire.Need{need(3, wire.Slots, 1)})
	reply, decided := b.Decide(first.NextRequest(), &allocator.PendingRequest{})
	if first.HandleResponse(&reply); !decided || !ticket.Refused() {
		t.Errorf("got %+v, decided: %t; want a refusal at once", reply, decided)
	}
}

// An answer to a recall counts for nothing when a grant was on its way: as soon
// as that has come, there is another one.
func TestRecallIsAnsweredAgainAfterAGrant(t *testing.T) {
	t.Parallel()
	b, first, _ := oneSlot(t)
	b.Pools[3].Total, b.Pools[3].Free = 2, 1
	first.Reserve([]wire.Need{need(3, wire.Slots, 1)})
	op := first.NextRequest()
	reply, _ := b.Decide(op, &allocator.PendingRequest{}) // on its way
	b.Pools[3].Generation++
	first.HandleRecall(3, b.Pools[3].Generation)
	b.ApplyReports(1, first.NextReturn().Reports)
	first.ReturnDelivered()
	if got := b.Leases[allocator.LeaseKey{Pool: 3, Session: 1}].RecalledGeneration; got != 1 {
		t.Fatalf("the answer counts: %d", got)
	}
	first.HandleResponse(&reply)
	again := first.NextReturn()
	if again == nil {
		t.Fatal("there is no other answer")
	}
	if b.ApplyReports(1, again.Reports); b.Leases[allocator.LeaseKey{Pool: 3, Session: 1}].RecalledGeneration != 2 {
		t.Error("the other one does not count either")
	}
	if first.ReturnDelivered(); first.NextReturn() != nil {
		t.Error("there is a third one")
	}
}
