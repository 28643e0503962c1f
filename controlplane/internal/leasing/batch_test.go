package leasing

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

// request returns a lease request that needs 10 units of the balance and one slot.
func request(session wire.SessionID, no int64) *wire.LeaseRequest {
	return &wire.LeaseRequest{
		V: wire.Version, Session: session, Account: "acc", Number: no,
		Needs: [][]wire.Need{{{Pool: 1, Kind: wire.Balance, Amount: 10}, {Pool: 2, Kind: wire.Slots, Amount: 1}}},
	}
}

// returning returns a return of the units that request needs.
func returning(session wire.SessionID) *wire.Return {
	return &wire.Return{V: wire.Version, Session: session, Account: "acc", Reports: []wire.LeaseReport{{Pool: 1, Generation: 1, GrantedSeen: 10, Returned: 10}, {Pool: 2, Generation: 1, GrantedSeen: 1, Returned: 1}}}
}

func granted(r wire.LeaseResponse) bool { return r.Status == wire.Done && r.Decisions[0].Granted }

// waitTime waits until all goroutines block, and then for a time.
func waitTime(d time.Duration) {
	synctest.Wait()
	time.Sleep(d)
	synctest.Wait()
}

func TestRefusalWaitsForReturnsDuringGracePeriod(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, newFakeStore(100, 1))
		r := newResponses()
		s.Request(request(1, 1), r.request)
		if !granted(<-r.requests) {
			t.Fatal("the first request was refused")
		}
		asked := time.Now()
		s.Request(request(2, 1), r.request)
		got := <-r.requests
		if waited := time.Since(asked); waited != allocator.RefusalGrace || got.Decisions[0].Reason != wire.NoSlot {
			t.Errorf("got %+v after %v; want the refusal no_slot after %v", got, waited, allocator.RefusalGrace)
		}
		asked = time.Now()
		s.Request(request(3, 1), r.request)
		waitTime(allocator.RefusalGrace / 2)
		s.Return(returning(1), r.ret)
		got = <-r.requests
		if waited := time.Since(asked); waited != allocator.RefusalGrace/2 || !granted(got) {
			t.Errorf("got %+v after %v; want a grant after %v, when the units were returned", got, waited, allocator.RefusalGrace/2)
		}
	})
}

// Units granted by a lease request cannot be returned before its response, so waiting for them
// would be useless.
func TestRefusalDoesNotWaitForUnitsOfItsOwnRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, newFakeStore(100, 1))
		r := newResponses()
		twice := request(1, 1)
		twice.Needs = append(twice.Needs, twice.Needs[0])
		asked := time.Now()
		s.Request(twice, r.request)
		got := <-r.requests
		if waited := time.Since(asked); waited != 0 || !got.Decisions[0].Granted || got.Decisions[1].Granted {
			t.Errorf("got %+v after %v; want one grant and one refusal at once", got.Decisions, waited)
		}
	})
}

// Returned units go to the pending request and not to one that arrives with the return.
func TestPendingRequestIsServedBeforeLaterOnes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(100, 1)
		s := start(t, store)
		first, second := newResponses(), newResponses()
		s.Request(request(1, 1), first.request)
		<-first.requests
		s.Request(request(2, 1), first.request)
		waitTime(0) // it is pending now
		store.hold, store.begun = make(chan bool), make(chan bool, 10)
		s.Return(&wire.Return{Session: 9, Account: "other"}, first.ret)
		<-store.begun // the next two messages arrive while a transaction runs, and so are in one batch
		s.Request(request(3, 1), second.request)
		s.Return(returning(1), second.ret)
		close(store.hold)
		if !granted(<-first.requests) {
			t.Error("the pending request was refused")
		}
		if granted(<-second.requests) {
			t.Error("the later request was granted")
		}
	})
}

func TestRepeatedPendingRequestGetsOneDecision(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(100, 1)
		store.repeat = true
		s := start(t, store)
		r := newResponses()
		s.Request(request(1, 1), r.request)
		<-r.requests
		for range 3 {
			s.Request(request(2, 1), r.request)
			waitTime(allocator.RefusalGrace / 4)
		}
		s.Return(returning(1), r.ret)
		waitTime(3 * allocator.RefusalGrace)
		if len(r.requests) != 3 || len(r.returns) != 1 {
			t.Fatalf("got %d responses to three copies and %d to a return; want 3 and 1", len(r.requests), len(r.returns))
		}
		want := <-r.requests
		for range 2 {
			if diff := cmp.Diff(want, <-r.requests); diff != "" || !granted(want) {
				t.Errorf("the copies got different responses, or were refused (-want +got):\n%s", diff)
			}
		}
		if p := store.state.Allocator.Pools[1]; p.Free != 90 {
			t.Errorf("%d free; want 90, since three copies are one request", p.Free)
		}
	})
}

func TestMessagesDuringATransactionFormTheNextBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(1_000_000, 1_000_000)
		store.hold, store.begun = make(chan bool), make(chan bool, 10)
		s := start(t, store)
		r := newResponses()
		s.Request(request(1, 1), r.request)
		<-store.begun
		for no := range int64(maxBatch + 10) {
			s.Request(request(2, no+1), r.request)
		}
		close(store.hold)
		for range maxBatch + 11 {
			<-r.requests
		}
		if diff := cmp.Diff([]int{1, maxBatch, 10}, store.sizes); diff != "" {
			t.Errorf("sizes of the batches (-want +got):\n%s", diff)
		}
	})
}

func TestEveryMessageIsAnsweredOnce(t *testing.T) {
	t.Parallel()
	statuses := func(r *responses) map[wire.Status]int {
		counts := map[wire.Status]int{}
		for len(r.requests) > 0 {
			counts[(<-r.requests).Status]++
		}
		for len(r.returns) > 0 {
			counts[(<-r.returns).Status]++
		}
		return counts
	}
	tests := []struct {
		name string
		run  func(t *testing.T, s *Service, store *fakeStore, r *responses)
		want map[wire.Status]int
	}{
		{"full queue", func(_ *testing.T, s *Service, _ *fakeStore, r *responses) {
			for no := range int64(maxQueue + 5) { // the service is not started and takes none out
				m := request(1, no+1)
				m.Account = fmt.Sprintf("account %d", no)
				s.Request(m, r.request)
			}
		}, map[wire.Status]int{wire.Unavailable: 5}},
		{"full share of an account", func(_ *testing.T, s *Service, _ *fakeStore, r *responses) {
			for no := range int64(maxQueue/4 + 5) {
				s.Request(request(1, no+1), r.request)
			}
		}, map[wire.Status]int{wire.Unavailable: 5}},
		{"store fails", func(t *testing.T, s *Service, store *fakeStore, r *responses) {
			store.fails = errStore
			s.Start(t.Context())
			s.Request(request(1, 1), r.request)
			s.Return(returning(1), r.ret)
			waitTime(time.Second)
			s.Stop()
		}, map[wire.Status]int{wire.Unavailable: 2}},
		{"stop while one request is pending and another one waits", func(t *testing.T, s *Service, _ *fakeStore, r *responses) {
			s.Start(t.Context())
			s.Request(request(1, 1), r.request)
			waitTime(0)
			s.Request(request(2, 1), r.request)
			waitTime(0)
			s.Stop()
			s.Request(request(3, 1), r.request)
			s.Return(returning(1), r.ret)
			waitTime(time.Second)
		}, map[wire.Status]int{wire.Done: 1, wire.Unavailable: 3}},
		{"stop while a transaction runs", func(t *testing.T, s *Service, store *fakeStore, r *responses) {
			store.hold, store.begun = make(chan bool), make(chan bool, 1)
			s.Start(t.Context())
			s.Request(request(1, 1), r.request)
			<-store.begun
			s.Request(request(2, 1), r.request)
			stopped := make(chan bool)
			go func() { s.Stop(); close(stopped) }()
			synctest.Wait()
			close(store.hold) // the running transaction is committed and answered
			<-stopped
		}, map[wire.Status]int{wire.Done: 1, wire.Unavailable: 1}},
		{"closed session", func(t *testing.T, s *Service, store *fakeStore, r *responses) {
			store.state.Sessions[1].State = session.Closed
			s.Start(t.Context())
			s.Request(request(1, 1), r.request)
			s.Return(returning(1), r.ret)
			waitTime(0)
			s.Stop()
		}, map[wire.Status]int{wire.Fenced: 2}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, r := newFakeStore(100, 1), newResponses()
				tt.run(t, newAnsweringService(store), store, r)
				if diff := cmp.Diff(tt.want, statuses(r)); diff != "" {
					t.Errorf("responses by status (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// Stop waits for one transaction at most, and not until its timeout.
func TestStopAnswersAllWhileTheStoreHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(1000, 1000)
		store.hold, store.begun = make(chan bool), make(chan bool, 10)
		s, r := newAnsweringService(store), newResponses()
		s.Start(t.Context())
		const sent = 3 * maxBatch
		for no := range int64(sent) {
			s.Request(request(2, no+1), r.request)
		}
		<-store.begun
		stopped := time.Now()
		s.Stop()
		if took := time.Since(stopped); took != stopTimeout {
			t.Errorf("the stop took %v; want %v", took, stopTimeout)
		}
		if len(r.requests) != sent {
			t.Errorf("%d of %d requests were answered", len(r.requests), sent)
		}
		for range sent {
			if got := (<-r.requests).Status; got != wire.Unavailable {
				t.Fatalf("got %s; want %s", got, wire.Unavailable)
			}
		}
	})
}

func TestRepeatedRequestsTakeOnePlaceInTheQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(100, 5)
		store.hold, store.begun = make(chan bool), make(chan bool, 1)
		s := start(t, store)
		r := newResponses()
		s.Request(request(1, 1), r.request)
		<-store.begun
		const more = 2 * maxQueue // more than the queue's capacity
		for range more {
			s.Request(request(1, 1), r.request)
		}
		close(store.hold)
		for range 1 + more {
			if got := <-r.requests; !granted(got) {
				t.Fatalf("got %+v; want it granted", got)
			}
		}
		if diff := cmp.Diff([]int{1}, store.sizes); diff != "" {
			t.Errorf("batch sizes (-want +got):\n%s", diff)
		}
		s.Request(request(1, 1), r.request) // a repetition after the response gets the stored response
		<-store.begun
		if got := <-r.requests; !granted(got) {
			t.Errorf("got %+v; want it granted", got)
		}
	})
}

// A return may be in transit for longer than the grace period. Until a session has answered the
// recall, no request is refused for want of the session's units.
func TestNoRefusalBeforeRecallIsAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(100, 1)
		s := newAnsweringService(store)
		s.pusher.(*sessions).deaf.Store(true) //nolint:forcetypeassert // created by newAnsweringService
		s.Start(t.Context())
		t.Cleanup(s.Stop)
		r := newResponses()
		s.Request(request(1, 1), r.request)
		if !granted(<-r.requests) {
			t.Fatal("the first request was refused")
		}
		asked := time.Now()
		s.Request(request(2, 1), r.request)
		got := <-r.requests
		if waited := time.Since(asked); waited != allocator.RefusalGrace+allocator.RecallTimeout || got.Status != wire.Wait {
			t.Errorf("got %+v after %v; want the status wait after %v", got, waited, allocator.RefusalGrace+allocator.RecallTimeout)
		}
		s.Request(request(2, 1), r.request)
		waitTime(2 * allocator.RefusalGrace)
		s.Return(returning(1), r.ret)
		if got := <-r.requests; !granted(got) {
			t.Errorf("got %+v; want a grant of the returned units", got)
		}
	})
}

// The usage events of a proxy whose clock is hours off would go into quarantine.
func TestProxyWithAWrongClockIsNotRegistered(t *testing.T) {
	t.Parallel()
	s := newAnsweringService(newFakeStore(100, 1))
	for _, off := range []time.Duration{-time.Hour, time.Hour} {
		got, err := s.Register(t.Context(), &wire.RegisterRequest{Name: "proxy", ClockMS: time.Now().Add(off).UnixMilli()})
		if err != nil || got.Status != wire.ClockDiffers || got.Session != 0 {
			t.Errorf("a clock that is off by %s: got %+v, %v; want %s", off, got, err, wire.ClockDiffers)
		}
	}
}

// A message with more reports or needs than a proxy sends would make one transaction, and all messages that wait for it,
// arbitrarily slow.
func TestMessageBeyondTheBoundsIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, newFakeStore(100, 1))
		r := newResponses()
		for name, exceed := range map[string]func(*wire.LeaseRequest){
			"reports":  func(q *wire.LeaseRequest) { q.Reports = make([]wire.LeaseReport, wire.MaxReports+1) },
			"requests": func(q *wire.LeaseRequest) { q.Needs = make([][]wire.Need, wire.MaxWaiters+1) },
			"needs":    func(q *wire.LeaseRequest) { q.Needs[0] = make([]wire.Need, wire.MaxNeeds+1) },
		} {
			large := request(1, 7)
			exceed(large)
			s.Request(large, r.request)
			if got := <-r.requests; got.Status != wire.TooLarge || got.Number != 7 {
				t.Errorf("%s: got %+v; want too_large", name, got)
			}
		}
		ret := returning(1)
		ret.Reports = make([]wire.LeaseReport, wire.MaxReports+1)
		s.Return(ret, r.ret)
		synctest.Wait()
		s.Request(request(1, 1), r.request)
		if !granted(<-r.requests) {
			t.Error("a message within the bounds was refused")
		}
		if got := testutil.ToFloat64(s.metrics.tooLarge); got != 4 {
			t.Errorf("%v messages were counted; want 4", got)
		}
	})
}
