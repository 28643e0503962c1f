package lease

import (
	"fmt"
	"testing"
)

// oneSlot is a Book with a single slot, which session 1 has at work.
func oneSlot(t *testing.T) (b *Book, first *Holder, running *Ticket) {
	t.Helper()
	b = NewBook()
	b.Pools[3] = &Pool{ID: 3, Kind: Slots, Central: true, Gen: 1, Total: 1, Free: 1}
	first = NewHolder(1, "b", "acc")
	running = first.Ask([]Need{{3, Slots, 1}})
	reply, _ := b.Op(first.NextOp(), &Stay{})
	if first.Answer(&reply); !running.Granted() {
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
				first.Finish(running, 0)
				if first.NextReturn() == nil {
					t.Fatal("nothing is given back")
				} // and it is lost
				first.ret = nil
			}
			second := NewHolder(2, "b", "acc")
			ticket := second.Ask([]Need{{3, Slots, 1}})
			op, stay := second.NextOp(), &Stay{}
			reply, decided := b.Op(op, stay)
			if decided || reply.Status != Wait {
				t.Fatalf("got %+v, decided: %t; want a recall", reply, decided)
			}
			for _, r := range b.ToRecall()[1] {
				first.Recall(r.Pool, r.Gen)
			}
			b.Report(1, first.NextReturn().Views)
			if reply, decided = b.Op(op, stay); !decided {
				t.Fatal("it waits although all have answered")
			}
			if second.Answer(&reply); ticket.Granted() != finished || ticket.Refused() == finished {
				t.Errorf("got %+v", reply)
			}
		})
	}
}

// One recall does for all who came before it, and for nobody who came later.
func TestOneRecallDoesForAllWhoCameBefore(t *testing.T) {
	t.Parallel()
	b, first, _ := oneSlot(t)
	var ops [3]*Op
	var stays [3]Stay
	for i := range ops {
		h := NewHolder(SessionID(i+2), "b", "acc")
		h.Ask([]Need{{3, Slots, 1}})
		ops[i] = h.NextOp()
	}
	look := func(i int, patient, want bool) {
		t.Helper()
		stays[i].Patient = patient
		if _, decided := b.Op(ops[i], &stays[i]); decided != want {
			t.Errorf("op %d, patient: %t: decided: %t", i, patient, decided)
		}
	}
	answer := func() {
		t.Helper()
		first.Recall(3, b.Pools[3].Gen)
		b.Report(1, first.NextReturn().Views)
		first.Returned()
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
	ticket := first.Ask([]Need{{3, Slots, 1}})
	reply, decided := b.Op(first.NextOp(), &Stay{})
	if first.Answer(&reply); !decided || !ticket.Refused() {
		t.Errorf("got %+v, decided: %t; want a refusal at once", reply, decided)
	}
}

// An answer to a recall counts for nothing when a grant was on its way: as soon
// as that has come, there is another one.
func TestRecallIsAnsweredAgainAfterAGrant(t *testing.T) {
	t.Parallel()
	b, first, _ := oneSlot(t)
	b.Pools[3].Total, b.Pools[3].Free = 2, 1
	first.Ask([]Need{{3, Slots, 1}})
	op := first.NextOp()
	reply, _ := b.Op(op, &Stay{}) // on its way
	b.Pools[3].Gen++
	first.Recall(3, b.Pools[3].Gen)
	b.Report(1, first.NextReturn().Views)
	first.Returned()
	if got := b.Leases[LeaseKey{3, 1}].RecalledGen; got != 1 {
		t.Fatalf("the answer counts: %d", got)
	}
	first.Answer(&reply)
	again := first.NextReturn()
	if again == nil {
		t.Fatal("there is no other answer")
	}
	if b.Report(1, again.Views); b.Leases[LeaseKey{3, 1}].RecalledGen != 2 {
		t.Error("the other one does not count either")
	}
	if first.Returned(); first.NextReturn() != nil {
		t.Error("there is a third one")
	}
}
