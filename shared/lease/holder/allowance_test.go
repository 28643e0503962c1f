package holder

import (
	"testing"
	"time"

	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/wire"
)

// overdrawn is a queue whose account has a balance and slots in central mode, and an
// outage allowance of 100 units and 2 slots.
type overdrawn struct {
	*Queue
	t *testing.T
	a *allocator.Allocator
}

var balanceAndSlot = []wire.Need{need(1, wire.Balance, 40), need(2, wire.Slots, 1)}

func newOverdrawn(t *testing.T) *overdrawn {
	t.Helper()
	q, a := newTestQueue(t)
	a.Pools[1].Central = true
	a.Pools[2] = &allocator.Pool{ID: 2, Kind: wire.Slots, Generation: 1, Central: true, Total: 50, Free: 50}
	o := &overdrawn{q, t, a}
	o.learn(0)
	return o
}

// learn makes one request be decided, so that the queue knows its allowance.
func (o *overdrawn) learn(now time.Duration) {
	o.t.Helper()
	w := o.Reserve(now, balanceAndSlot)
	for range 2 { // an earlier lease request may have no response yet
		if o.Next(now); !w.Granted() {
			o.decide(now)
		}
	}
	if !w.Granted() || w.UnderAllowance() {
		o.t.Fatal("the first request was not granted by the control plane")
	}
	o.Release(w, 0)
	o.Next(now)
}

func (o *overdrawn) decide(now time.Duration) {
	o.t.Helper()
	request, _ := o.Outstanding()
	response, _ := o.a.Decide(request, &allocator.PendingRequest{})
	for i := range response.Leases {
		response.Leases[i].Allowance = map[wire.PoolID]int64{1: 100, 2: 2}[response.Leases[i].Pool]
	}
	if !o.HandleResponse(now, now, request, &response) {
		o.t.Fatal("the response was not accepted")
	}
}

// after reserves a balance and a slot, and returns the waiter after a decision timeout
// without any response.
func (o *overdrawn) after(now time.Duration) *Waiter {
	o.t.Helper()
	w := o.Reserve(now, balanceAndSlot)
	o.Next(now)
	o.Next(now + 2*time.Second)
	return w
}

func TestOutageAllowanceGrantsARequestThatNobodyDecides(t *testing.T) {
	t.Parallel()
	q := newOverdrawn(t)
	w := q.Reserve(time.Second, balanceAndSlot)
	q.Next(time.Second)
	if out := q.Next(3*time.Second - 1); len(out.Decided) != 0 {
		t.Error("the request was decided before the decision timeout")
	}
	if out := q.Next(3 * time.Second); len(out.Decided) != 1 || !w.Granted() || !w.UnderAllowance() {
		t.Errorf("decided %v; want the request granted under the allowance", out.Decided)
	}
	if q.allowance.Balance() != 40 {
		t.Errorf("%d of the allowance is used; want 40", q.allowance.Balance())
	}
}

func TestOutageAllowanceIsNotUsedWhileAControlPlaneDecides(t *testing.T) {
	t.Parallel()
	q := newOverdrawn(t)
	q.a.Pools[3] = &allocator.Pool{ID: 3, Kind: wire.Balance, Generation: 2, Total: 1 << 40, Free: 1 << 40}
	other := NewQueue(NewHolder(1, "boot", "other"), q.timing, q.response, q.allowance)
	w := q.Reserve(time.Second, balanceAndSlot)
	q.Next(time.Second)
	other.Reserve(time.Second, []wire.Need{need(3, wire.Balance, 10)})
	other.Next(time.Second)
	respond(t, other, q.a, 1500*time.Millisecond, time.Second)
	if q.Next(3 * time.Second); w.Granted() {
		t.Error("the allowance was used although a request of another account was decided meanwhile")
	}
}

func TestOutageAllowanceIsNotUsedAfterAPauseOfTheProcess(t *testing.T) {
	t.Parallel()
	q := newOverdrawn(t)
	w := q.Reserve(time.Second, balanceAndSlot)
	q.Next(time.Second)
	if q.Next(4 * time.Second); w.Granted() {
		t.Error("the allowance was used although a response may not have been read yet")
	}
}

func TestOutageAllowanceGrantsAtOnceWhenNoControlPlaneTakesMessages(t *testing.T) {
	t.Parallel()
	q := newOverdrawn(t)
	first := q.Reserve(time.Second, balanceAndSlot)
	request := q.Next(time.Second).Request
	q.RequestFailed(time.Second, request)
	q.RequestFailed(3*time.Second, request)
	second, third := q.Reserve(3*time.Second, balanceAndSlot), q.Reserve(3*time.Second, balanceAndSlot)
	for i, w := range []*Waiter{first, second} {
		if !w.Granted() || !w.UnderAllowance() {
			t.Errorf("request %d was not granted under the allowance", i+1)
		}
	}
	if !third.Aborted() {
		t.Error("a request was granted beyond the allowance, or waits")
	}
}

// The control plane responds between two outages, but the charges of the first are not settled.
func TestOutageAllowanceIsUsedUntilItsChargesAreSettled(t *testing.T) {
	t.Parallel()
	q := newOverdrawn(t)
	first, second := q.after(time.Second), q.after(4*time.Second)
	q.Release(first, 50)
	q.Release(second, 40)
	q.learn(7 * time.Second)
	later := NewQueue(NewHolder(2, "boot", "acc"), q.timing, q.response, q.allowance)
	next := &overdrawn{later, t, q.a}
	next.learn(8 * time.Second)
	if next.after(9 * time.Second).Granted() {
		t.Error("the next session gets an allowance again that is not settled")
	}
	q.allowance.Settled(first.Beyond(), 50)
	w := next.after(12 * time.Second)
	if !w.Granted() {
		t.Error("what is settled is not given back")
	}
	next.Release(w, 0)
	q.allowance.Settled(second.Beyond(), 40)
	if q.allowance.Balance() != 0 {
		t.Errorf("%d of the allowance is used at the end; want nothing", q.allowance.Balance())
	}
}

func TestOutageAllowanceEndsWithARecallAndWithAChange(t *testing.T) {
	t.Parallel()
	for name, event := range map[string]func(q *Queue){
		"recall": func(q *Queue) { q.HandleRecall(1, 5) },
		"change": (*Queue).DisableEscrow,
	} {
		q := newOverdrawn(t)
		if event(q.Queue); q.after(time.Second).Granted() {
			t.Errorf("%s: the allowance of before is used", name)
		}
		q.a.Pools[1].Generation = 5
		q.decide(4 * time.Second)
		q.Next(4 * time.Second)
		if !q.after(5 * time.Second).Granted() {
			t.Errorf("%s: the allowance of a later response is not used", name)
		}
	}
}

// The response to the lease request comes after all: its units cover what was admitted without them.
func TestLateGrantCoversWhatWasAdmittedUnderTheAllowance(t *testing.T) {
	t.Parallel()
	q := newOverdrawn(t)
	w := q.after(time.Second)
	q.decide(4 * time.Second)
	q.Next(4 * time.Second)
	q.Release(w, 30)
	q.Next(4 * time.Second)
	if at := q.LeaseView(1); at.Granted-at.Returned-at.Charged != 0 || at.Charged != 30 {
		t.Errorf("the lease is %+v; want the rest of the late grant returned", at)
	}
	if at := q.LeaseView(2); at.Granted != at.Returned {
		t.Errorf("the lease of slots is %+v; want all returned", at)
	}
}
