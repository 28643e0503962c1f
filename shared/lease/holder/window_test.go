package holder

import (
	"slices"
	"testing"
	"time"

	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/wire"
)

// windowBatch has a balance and two windows of a limit with room for idle units.
func windowBatch() *allocator.Allocator {
	a := allocator.New()
	for _, id := range []wire.PoolID{1, 11, 12} {
		kind := wire.Limit
		if id == 1 {
			kind = wire.Balance
		}
		a.Pools[id] = &allocator.Pool{ID: id, Kind: kind, Account: "acc", Generation: 2, Total: 1 << 40, Free: 1 << 40, EndMS: 60_000}
	}
	return a
}

// The idle units of a window that has ended come back at its end, without a message from anybody and whatever the account does, and
// what a request still uses of it when the request ends.
func TestUnitsOfAWindowComeBackWhenItEnds(t *testing.T) {
	t.Parallel()
	a := windowBatch()
	timing := DefaultTiming(func(time.Duration) time.Duration { return 0 })
	q := NewQueue(NewHolder(1, "b", "acc"), &timing, &ResponseTime{})
	reserve := func(now time.Duration, window wire.PoolID) *Waiter {
		w := q.Reserve(now, []wire.Need{need(1, wire.Balance, 10), need(window, wire.Limit, 10)})
		q.UseUntil(window, time.Minute*time.Duration(window-10))
		return w
	}

	running := reserve(0, 11)
	out := q.Next(0)
	response, _ := a.Decide(out.Request, &allocator.PendingRequest{})
	q.HandleResponse(0, 0, out.Request, &response)
	if !running.Granted() || q.LeaseView(11).Granted <= 10 {
		t.Fatalf("the lease is %+v; want idle units beside those of the request", q.LeaseView(11))
	}

	if out = q.Next(59 * time.Second); out.Return != nil || out.Wake > time.Minute {
		t.Fatalf("before the end: got %+v", out)
	}
	out = q.Next(time.Minute)
	if out.Return == nil || !slices.ContainsFunc(out.Return.Reports, func(r wire.LeaseReport) bool { return r.Pool == 11 && r.Idle == 0 }) {
		t.Fatalf("at the end: got %+v; want the idle units returned", out.Return)
	}
	if l := q.LeaseView(11); l.Granted-l.Returned != 10 {
		t.Errorf("the lease is %+v; want only what the request uses", l)
	}
	if l := q.LeaseView(1); l.Granted-l.Returned <= 10 {
		t.Errorf("the lease of the balance is %+v; want its idle units kept", l)
	}

	q.Release(running, 4)
	if l := q.LeaseView(11); l.Charged != 4 || l.Granted != l.Returned+4 {
		t.Errorf("after the request: %+v", l)
	}
	if w := reserve(61*time.Second, 12); w.Granted() {
		t.Error("the next window is used without being asked for")
	}
}

// A clock that was set back needs the window again that had ended.
func TestWindowThatHadEndedByAWrongClockIsUsedAgain(t *testing.T) {
	t.Parallel()
	a := windowBatch()
	timing := DefaultTiming(func(time.Duration) time.Duration { return 0 })
	q := NewQueue(NewHolder(1, "b", "acc"), &timing, &ResponseTime{})
	for i, at := range []time.Duration{time.Second, time.Minute} {
		now := time.Duration(2*i) * time.Second
		w := q.Reserve(now, []wire.Need{need(11, wire.Limit, 10)})
		q.UseUntil(11, at)
		out := q.Next(now)
		if out.Request == nil {
			t.Fatalf("at %s: no lease request", now)
		}
		response, _ := a.Decide(out.Request, &allocator.PendingRequest{})
		q.HandleResponse(now, now, out.Request, &response)
		if !w.Granted() {
			t.Fatalf("at %s: the request is not granted", now)
		}
		q.Release(w, 1)
		q.Next(now + time.Second)
		if l := q.LeaseView(11); (l.Granted-l.Returned-l.Charged > 0) != (i == 1) {
			t.Errorf("a second after %s: %+v", now, l)
		}
	}
}

// The keys of an account can have eight limits each: the leases that 64 waiters need can be more than a message may report, and a
// message with more would never be decided.
func TestLeaseRequestOfManyLimitsIsNotTooLarge(t *testing.T) {
	t.Parallel()
	h := NewHolder(1, "b", "acc")
	const waiters, limits = 100, 8
	for i := range wire.PoolID(waiters) {
		needs := []wire.Need{need(1, wire.Balance, 10), need(2, wire.Slots, 1)}
		for l := range wire.PoolID(limits) {
			needs = append(needs, need(1000+i*limits+l, wire.Limit, 10))
		}
		h.Reserve(needs)
	}
	a := allocator.New()
	for id := range wire.PoolID(2000) {
		a.Pools[id] = &allocator.Pool{ID: id, Account: "acc", Central: true, Total: 1 << 40, Free: 1 << 40}
	}
	decided := 0
	for r := h.NextRequest(); r != nil; r = h.NextRequest() {
		if allocator.Exceeds(r.Reports, r.Needs) || len(r.Needs) == 0 {
			t.Fatalf("a request with %d needs and %d reports", len(r.Needs), len(r.Reports))
		}
		response, _ := a.Decide(r, &allocator.PendingRequest{})
		decided += len(h.HandleResponse(&response))
	}
	if decided != waiters {
		t.Errorf("%d of %d waiters are decided", decided, waiters)
	}
}
