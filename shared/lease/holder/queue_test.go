package holder

import (
	"testing"
	"time"

	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/wire"
)

// newTestQueue returns the Queue of session 1 without jitter, and an allocator
// with a balance in escrow mode.
func newTestQueue(t *testing.T) (*Queue, *allocator.Allocator) {
	t.Helper()
	a := allocator.New()
	a.Pools[1] = &allocator.Pool{ID: 1, Kind: wire.Balance, Generation: 2, Total: 1 << 40, Free: 1 << 40}
	timing := DefaultTiming(func(time.Duration) time.Duration { return 0 })
	timing.IdleTimeout = 10 * time.Second
	return NewQueue(NewHolder(1, "boot", "acc"), &timing, &ResponseTime{}), a
}

// respond decides the outstanding lease request and delivers the response.
func respond(t *testing.T, q *Queue, a *allocator.Allocator, now, sentAt time.Duration) {
	t.Helper()
	request, _ := q.Outstanding()
	response, decided := a.Decide(request, &allocator.PendingRequest{})
	if !decided || !q.HandleResponse(now, sentAt, request, &response) {
		t.Fatalf("the response to %+v was not accepted", request)
	}
}

func TestLeaseRequestIsRepeatedAtGrowingIntervals(t *testing.T) {
	t.Parallel()
	q, _ := newTestQueue(t)
	q.Reserve(0, []wire.Need{need(1, wire.Balance, 10)})
	first := q.Next(0).Request
	var sent []time.Duration
	for now := time.Duration(0); now < 500*time.Millisecond; {
		out := q.Next(now)
		if out.Request != nil {
			sent = append(sent, now)
			if out.Request != first {
				t.Fatal("another request is sent before the first has a response")
			}
		}
		now = out.Wake
	}
	want := []time.Duration{60 * time.Millisecond, 150 * time.Millisecond, 285 * time.Millisecond, 487500 * time.Microsecond}
	if len(sent) != len(want) {
		t.Fatalf("repeated at %v; want %v", sent, want)
	}
	for i := range want {
		if sent[i] != want[i] {
			t.Errorf("repeated at %v; want %v", sent[i], want[i])
		}
	}
}

func TestLateGrantOfAnExpiredWaiterIsReturned(t *testing.T) {
	t.Parallel()
	q, a := newTestQueue(t)
	a.Pools[1].Central = true
	w := q.Reserve(0, []wire.Need{need(1, wire.Balance, 10)})
	q.Next(0)
	if out := q.Next(2*time.Second - 1); len(out.Decided) != 0 {
		t.Error("the waiter expired before the decision timeout")
	}
	if out := q.Next(2 * time.Second); len(out.Decided) != 1 || out.Decided[0] != w || w.Granted() {
		t.Errorf("decided %v; want the waiter, expired", out.Decided)
	}
	respond(t, q, a, 3*time.Second, 0)
	out := q.Next(3 * time.Second)
	if len(out.Decided) != 0 || out.Return == nil || out.Return.Reports[0].Returned != 10 {
		t.Errorf("got %+v; want the units returned", out)
	}
}

func TestIdleUnitsAreReturnedAfterTheIdleTimeout(t *testing.T) {
	t.Parallel()
	q, a := newTestQueue(t)
	w := q.Reserve(0, []wire.Need{need(1, wire.Balance, 10)})
	q.Next(0)
	respond(t, q, a, 0, 0)
	q.Next(0)
	if q.Reserve(time.Second, []wire.Need{need(1, wire.Balance, 10)}).Granted() != true || !w.Granted() {
		t.Fatal("the first request, or the one that idle units cover, was not granted")
	}
	if out := q.Next(10 * time.Second); out.Return != nil || out.Wake != 11*time.Second {
		t.Errorf("got %+v; want the idle units kept for 10 s after the last request", out)
	}
	question := q.Next(11 * time.Second).Return
	if question == nil || question.Reports[0].Returned != 0 || question.Reports[0].Idle == 0 {
		t.Fatalf("got %+v; want a report that gives nothing back yet", question)
	}
	a.ApplyReports(1, question.Reports)
	q.HandleReturned(12*time.Second, 11*time.Second, question, &wire.ReturnResponse{Status: wire.Done})
	if out := q.Next(12 * time.Second); out.Return == nil || out.Return.Reports[0].Idle != 0 || out.Return.Reports[0].Returned == 0 {
		t.Errorf("got %+v; want the idle units returned", out)
	}
}

func TestIdleUnitsAreKeptWhileTheControlPlaneDoesNotRespond(t *testing.T) {
	t.Parallel()
	q, a := newTestQueue(t)
	q.Reserve(0, []wire.Need{need(1, wire.Balance, 10)})
	q.Next(0)
	respond(t, q, a, 0, 0)
	for now := time.Duration(0); now < time.Hour; now += time.Second {
		q.Next(now)
	}
	_, question := q.Outstanding()
	if w := q.Reserve(time.Hour, []wire.Need{need(1, wire.Balance, 10)}); !w.Granted() {
		t.Fatal("after an hour without a response, idle units do not cover a request")
	}
	q.HandleReturned(time.Hour, time.Hour, question, &wire.ReturnResponse{Status: wire.Done})
	if out := q.Next(time.Hour); out.Return != nil {
		t.Errorf("got %+v; want the idle units kept, because the account is used again", out)
	}
	out := q.Next(time.Hour + 10*time.Second)
	if out.Return == nil || out.Return.Reports[0].Returned != 0 {
		t.Errorf("got %+v; want a new report, because the answered one was sent before the idle timeout", out)
	}
}

// A proxy may keep idle units of very many accounts. The leases that hold nothing
// are forgotten as soon as before.
func TestQueueThatKeepsIdleUnitsIsCalledEverLessOften(t *testing.T) {
	t.Parallel()
	q, a := newTestQueue(t)
	q.timing.IdleTimeout = time.Hour
	a.Pools[2] = &allocator.Pool{ID: 2, Kind: wire.Limit, Central: true, Generation: 2, Total: 10, Free: 10}
	w := q.Reserve(0, []wire.Need{need(1, wire.Balance, 10), need(2, wire.Limit, 10)})
	q.Next(0)
	respond(t, q, a, 0, 0)
	q.Release(w, 0)
	calls := 0
	for now := time.Duration(0); now < time.Hour; {
		calls++
		out := q.Next(now)
		if ret := out.Return; ret != nil {
			a.ApplyReports(1, ret.Reports)
			var settled []wire.PoolID
			for _, report := range ret.Reports {
				settled = append(settled, report.Pool)
			}
			q.HandleReturned(now, now, ret, &wire.ReturnResponse{Status: wire.Done, Settled: settled})
			continue
		}
		if now = out.Wake; now > time.Minute && len(q.holder.pools) != 1 {
			t.Fatalf("%d leases are kept after a minute; want one", len(q.holder.pools))
		}
	}
	if !q.holder.hasIdle() || len(q.holder.pools) != 1 || calls > 20 {
		t.Errorf("%d leases and %d calls in an hour, idle units: %t; want only the lease with idle units, and at most 20 calls", len(q.holder.pools), calls, q.holder.hasIdle())
	}
}

func TestResponseToAReturnFromBeforeTheIdleTimeoutGivesNothingBack(t *testing.T) {
	t.Parallel()
	q, a := newTestQueue(t)
	q.Reserve(0, []wire.Need{need(1, wire.Balance, 10)})
	q.Next(0)
	respond(t, q, a, 0, 0)
	question := q.Next(10 * time.Second).Return
	q.HandleReturned(11*time.Second, 10*time.Second-1, question, &wire.ReturnResponse{Status: wire.Done})
	if out := q.Next(11 * time.Second); out.Return == nil || out.Return.Reports[0].Returned != 0 {
		t.Errorf("got %+v; want another report that gives nothing back", out)
	}
}

func TestEndedSessionReturnsEveryUnit(t *testing.T) {
	t.Parallel()
	q, a := newTestQueue(t)
	w := q.Reserve(0, []wire.Need{need(1, wire.Balance, 10)})
	q.Next(0)
	respond(t, q, a, 0, 0)
	q.Next(0)
	q.EndSession()
	out := q.Next(0)
	if out.Return == nil || q.Reserve(0, nil) != nil {
		t.Fatalf("got %+v; want the allotment returned, and no more requests", out)
	}
	a.ApplyReports(1, out.Return.Reports)
	q.HandleReturned(0, 0, out.Return, &wire.ReturnResponse{Status: wire.Done})
	q.Release(w, 4)
	out = q.Next(0)
	a.ApplyReports(1, out.Return.Reports)
	if outstanding := a.Leases[allocator.LeaseKey{Pool: 1, Session: 1}].Outstanding(); outstanding != 4 {
		t.Errorf("%d units are outstanding; want only the unsettled cost of 4", outstanding)
	}
	q.HandleReturned(0, 0, out.Return, &wire.ReturnResponse{Status: wire.Fenced})
	if out = q.Next(time.Hour); out.Return != nil || out.Wake != Never {
		t.Errorf("got %+v after the session was closed; want no return and no wake time", out)
	}
}

// A request waits only if the allotment is used up, or while the next allotment is
// on its way. With 1,000 requests per second and a response time of 5 ms, less than
// 5 % of the requests wait.
func TestAllotmentsAdmitNearlyAllRequestsLocally(t *testing.T) {
	t.Parallel()
	const roundTrip = 5 * time.Millisecond
	q, a := newTestQueue(t)
	local, waited := 0, 0
	var dueAt time.Duration
	for now := time.Duration(0); now < 10*time.Second; now += time.Millisecond {
		if request, _ := q.Outstanding(); request != nil && now >= dueAt {
			respond(t, q, a, now, dueAt-roundTrip)
			for _, w := range q.Next(now).Decided {
				q.Release(w, 10)
			}
		}
		w := q.Reserve(now, []wire.Need{need(1, wire.Balance, 10)})
		if w.Granted() {
			local++
			q.Release(w, 10)
			continue
		}
		waited++
		if q.Next(now).Request != nil {
			dueAt = now + roundTrip
		}
	}
	if share := float64(local) / float64(local+waited); share < .95 {
		t.Errorf("%.1f %% of %d are admitted locally; want 95 %%", 100*share, local+waited)
	} else {
		t.Logf("%.1f %% of %d are admitted locally", 100*share, local+waited)
	}
}

// While the control plane is back for another account, the requests of this one wait for their own response.
func TestSuccessForAnotherAccountEndsTheAbortsAtOnce(t *testing.T) {
	t.Parallel()
	q, a := newTestQueue(t)
	other := NewQueue(NewHolder(1, "boot", "other"), q.timing, q.response)
	a.Pools[2] = &allocator.Pool{ID: 2, Kind: wire.Balance, Generation: 2, Total: 1 << 40, Free: 1 << 40}
	needs := []wire.Need{need(1, wire.Balance, 10)}
	q.Reserve(0, needs)
	other.Reserve(0, []wire.Need{need(2, wire.Balance, 10)})
	request := q.Next(0).Request
	other.Next(0)
	q.RequestFailed(0, request)
	q.RequestFailed(2*time.Second, request)
	if w := q.Reserve(2*time.Second, needs); !w.Aborted() {
		t.Error("a request waits although nothing was decided for a decision timeout")
	}
	respond(t, other, a, 3*time.Second, 2*time.Second)
	if w := q.Reserve(3*time.Second, needs); w.Aborted() {
		t.Error("a request was aborted although the control plane decides requests of another account")
	}
	other.Reserve(3*time.Second, []wire.Need{need(2, wire.Balance, 1<<30)})
	again := other.Next(3 * time.Second).Request
	other.RequestFailed(3*time.Second, again) // the first failure of a new row
	if w := q.Reserve(3*time.Second, needs); w.Aborted() {
		t.Error("a request was aborted after the first failure")
	}
}

// A replica that waits for a recall is at work: later failures are not the same outage.
func TestResponseThatSaysToWaitEndsARowOfFailures(t *testing.T) {
	t.Parallel()
	q, _ := newTestQueue(t)
	first := q.Reserve(0, []wire.Need{need(1, wire.Balance, 10)})
	request := q.Next(0).Request
	q.RequestFailed(0, request)
	q.HandleResponse(time.Second, 0, request, &wire.LeaseResponse{V: wire.Version, Number: request.Number, Status: wire.Wait})
	q.RequestFailed(2*time.Second-1, request)
	if first.Aborted() {
		t.Error("a request was aborted within a decision timeout of a response")
	}
	q.RequestFailed(4*time.Second, request)
	if w := q.Reserve(4*time.Second, []wire.Need{need(1, wire.Balance, 10)}); !w.Aborted() {
		t.Error("a request waits although nothing was decided for a decision timeout")
	}
	q.HandleResponse(5*time.Second, 0, request, &wire.LeaseResponse{V: wire.Version, Number: request.Number, Status: wire.Wait})
	if w := q.Reserve(5*time.Second, []wire.Need{need(1, wire.Balance, 10)}); w.Aborted() {
		t.Error("a request was aborted although a control plane is at work")
	}
}
