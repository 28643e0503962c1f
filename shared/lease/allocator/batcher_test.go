package allocator

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

func newTestBatcher() *Batcher {
	return NewBatcher(BatcherConfig{MaxBatch: 2, MaxQueue: 12})
}

// oneSlotBatch returns the state of an account with one slot, which session 1 holds.
func oneSlotBatch() *Batch {
	a := New()
	a.Pools[1] = &Pool{ID: 1, Kind: wire.Slots, Account: "acc", Central: true, Generation: 1, Total: 1}
	a.Leases[LeaseKey{1, 1}] = &Lease{Granted: 1, RecalledGeneration: 1}
	records := map[wire.SessionID]*session.Record{}
	for id := range wire.SessionID(4) {
		records[id] = &session.Record{ID: id, State: session.Active}
	}
	return &Batch{Allocator: a, Sessions: records, Results: map[RequestKey]*Result{}}
}

func slotRequest(s wire.SessionID, number int64) *wire.LeaseRequest {
	return &wire.LeaseRequest{Session: s, Account: "acc", Number: number, Needs: [][]wire.Need{{{Pool: 1, Kind: wire.Slots, Amount: 1}}}}
}

// commit runs the next transaction and returns the number of responses.
func commit(t *testing.T, b *Batcher, batch *Batch, now time.Duration) int {
	t.Helper()
	tx, _ := b.Next(now)
	if tx == nil {
		t.Fatal("there is nothing to decide")
	}
	tx.Decide(batch)
	responses, _ := b.Commit(tx)
	for _, respond := range responses {
		respond()
	}
	return len(responses)
}

func TestOneTransactionRunsAtATime(t *testing.T) {
	t.Parallel()
	b := newTestBatcher()
	for number := range int64(3) {
		if !b.AddRequest(slotRequest(2, number+1), func(wire.LeaseResponse) {}) {
			t.Fatal("a request was refused although the queue is not full")
		}
	}
	if b.AddReturn(&wire.Return{Session: 1, Account: "acc"}, func(wire.ReturnResponse) {}) {
		t.Error("an account got more than a quarter of the queue")
	}
	tx, _ := b.Next(0)
	if other, wake := b.Next(0); tx.Len() != 2 || other != nil || wake != Never {
		t.Errorf("a batch of %d messages, and another transaction %v; want 2 messages and no other", tx.Len(), other)
	}
	if responses := b.Fail(tx); len(responses) != 2 {
		t.Errorf("%d responses after a failure; want 2", len(responses))
	}
	if tx, _ = b.Next(0); tx == nil || tx.Len() != 1 {
		t.Error("the third message is not in the next batch")
	}
}

// An account has a thousand messages in the queue when one of another account comes, and one of another session of the
// same account.
func TestMessagesWaitForOneOfEachOtherAccountAndSession(t *testing.T) {
	t.Parallel()
	b := NewBatcher(BatcherConfig{MaxBatch: 2, MaxQueue: 8192})
	add := func(session wire.SessionID, account string, number int64) {
		t.Helper()
		request := &wire.LeaseRequest{Session: session, Account: account, Number: number}
		if !b.AddRequest(request, func(wire.LeaseResponse) {}) {
			t.Fatal("a request was refused although the queue is not full")
		}
	}
	for number := range int64(1000) {
		add(1, "noisy", number+1)
	}
	add(2, "quiet", 1)
	add(2, "noisy", 1)
	add(3, "other", 1)
	var order []string
	for range 4 {
		tx, _ := b.Next(0)
		for _, request := range tx.Requests() {
			order = append(order, fmt.Sprint(request.Account, request.Session, " ", request.Number))
		}
		b.Fail(tx)
	}
	want := []string{"noisy1 1", "quiet2 1", "other3 1", "noisy2 1", "noisy1 2", "noisy1 3", "noisy1 4", "noisy1 5"}
	if !slices.Equal(order, want) {
		t.Errorf("got %q; want %q", order, want)
	}
	count := 0
	for tx, _ := b.Next(0); tx != nil; tx, _ = b.Next(0) {
		count += tx.Len()
		b.Fail(tx)
	}
	if count != 995 || b.queue.length != 0 || len(b.queue.accounts) != 0 || len(b.queue.order) != 0 {
		t.Errorf("%d further messages, and %+v is left; want 995 and an empty queue", count, b.queue)
	}
}

func TestFullQueueRefusesMessages(t *testing.T) {
	t.Parallel()
	b := newTestBatcher()
	for i := range 12 {
		if !b.AddReturn(&wire.Return{Session: 1, Account: strconv.Itoa(i / 3)}, func(wire.ReturnResponse) {}) {
			t.Fatalf("return %d was refused although the queue is not full", i)
		}
	}
	if b.AddReturn(&wire.Return{Session: 1, Account: "new"}, func(wire.ReturnResponse) {}) {
		t.Error("a return was added to a full queue")
	}
	if n := len(b.Stop()); n != 12 {
		t.Errorf("%d responses after the stop; want 12", n)
	}
}

func TestPendingRequestIsDecidedBeforeLaterOnes(t *testing.T) {
	t.Parallel()
	b, batch := newTestBatcher(), oneSlotBatch()
	granted := map[wire.SessionID]bool{}
	request := func(s wire.SessionID) {
		b.AddRequest(slotRequest(s, 1), func(r wire.LeaseResponse) { granted[s] = r.Decisions[0].Granted })
	}
	request(2)
	if n := commit(t, b, batch, 0); n != 0 {
		t.Fatalf("%d responses; want the request to wait for the slot", n)
	}
	if tx, wake := b.Next(0); tx != nil || wake != 50*time.Millisecond {
		t.Errorf("transaction %v, wake at %v; want none before the end of the grace period", tx, wake)
	}
	request(3)
	b.AddReturn(&wire.Return{Session: 1, Account: "acc", Reports: []wire.LeaseReport{{Pool: 1, Generation: 1, GrantedSeen: 1, Returned: 1}}}, func(wire.ReturnResponse) {})
	commit(t, b, batch, 20*time.Millisecond)
	if !granted[2] || granted[3] {
		t.Errorf("granted %v; want the slot for the request that came first", granted)
	}
}

func TestRepeatedRequestsShareOneDecision(t *testing.T) {
	t.Parallel()
	b, batch := newTestBatcher(), oneSlotBatch()
	batch.Allocator.Pools[1].Adjust(1)
	responses := 0
	for range 10 { // more than the capacity of the queue
		if !b.AddRequest(slotRequest(1, 1), func(wire.LeaseResponse) { responses++ }) {
			t.Fatal("a repeated request was refused by the queue")
		}
	}
	commit(t, b, batch, 0)
	if responses != 10 {
		t.Errorf("%d of 10 senders got a response; want all", responses)
	}
	b.AddRequest(slotRequest(2, 1), func(wire.LeaseResponse) { responses++ })
	for _, respond := range b.Stop() {
		respond()
	}
	if responses != 11 || b.AddRequest(slotRequest(3, 1), func(wire.LeaseResponse) {}) {
		t.Error("the stopped batcher left a request without a response, or accepted another one")
	}
}

// A process that guesses the session, account and number of another's lease request has its own message refused, and
// changes nothing about the other.
func TestRequestOfAnotherProcessIsNoRepetition(t *testing.T) {
	t.Parallel()
	b, batch := newTestBatcher(), oneSlotBatch()
	batch.Allocator.Leases[LeaseKey{1, 1}].Returned, batch.Allocator.Pools[1].Free = 1, 1
	batch.Sessions[2].BootID = "mine"
	var got []wire.LeaseResponse
	for _, boot := range []string{"other", "mine", "mine"} {
		request := slotRequest(2, 1)
		request.BootID = boot
		b.AddRequest(request, func(r wire.LeaseResponse) { got = append(got, r) })
	}
	if n := commit(t, b, batch, 0); n != 2 || len(got) != 3 {
		t.Fatalf("%d messages were decided with %d responses; want two with three", n, len(got))
	}
	if got[0].Status != wire.Fenced || got[1].Status != wire.Done || got[2].Status != wire.Done {
		t.Errorf("got %+v; want fenced for the other process and decisions for the session's own", got)
	}
}

func TestNegativeIdleUnitsAddNothingToAGrant(t *testing.T) {
	t.Parallel()
	grant := func(idle int64) int64 {
		a := New()
		a.Pools[1] = &Pool{ID: 1, Kind: wire.Balance, Account: "acc", Generation: 1, Total: 1600, Free: 1600}
		request := &wire.LeaseRequest{
			Session: 1, Account: "acc", Number: 1, Needs: [][]wire.Need{{{Pool: 1, Kind: wire.Balance, Amount: 10}}},
			Reports: []wire.LeaseReport{{Pool: 1, Idle: idle}},
		}
		if r, decided := a.Decide(request, &PendingRequest{}); !decided || !r.Decisions[0].Granted {
			t.Fatalf("got %+v", r)
		}
		return a.Leases[LeaseKey{1, 1}].Granted
	}
	if got, want := grant(-1_000_000), grant(0); got != want {
		t.Errorf("granted %d to a session that reports less than no idle units; want %d", got, want)
	}
}
