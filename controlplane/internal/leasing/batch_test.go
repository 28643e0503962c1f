package leasing

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

// request is an op for one request of 10 from the balance and one slot.
func request(session wire.SessionID, no int64) *wire.LeaseRequest {
	return &wire.LeaseRequest{
		V: wire.Version, Session: session, Account: "acc", Number: no,
		Needs: [][]wire.Need{{{Pool: 1, Kind: wire.Balance, Amount: 10}, {Pool: 2, Kind: wire.Slots, Amount: 1}}},
	}
}

// returning gives back what the session holds of both pools.
func returning(session wire.SessionID) *wire.Return {
	return &wire.Return{V: wire.Version, Session: session, Account: "acc", Reports: []wire.LeaseReport{{Pool: 1, Generation: 1, GrantedSeen: 10, Returned: 10}, {Pool: 2, Generation: 1, GrantedSeen: 1, Returned: 1}}}
}

func granted(r wire.LeaseResponse) bool { return r.Status == wire.Done && r.Decisions[0].Granted }

// waitTime lets everything settle and then a time pass.
func waitTime(d time.Duration) {
	synctest.Wait()
	time.Sleep(d)
	synctest.Wait()
}

// TestLinger: a refusal that a return could cure is held back for so long, and
// no longer.
func TestLinger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, newFakeStore(100, 1))
		r := newReplies()
		s.Request(request(1, 1), r.op)
		if !granted(<-r.ops) {
			t.Fatal("the first request was refused")
		}
		asked := time.Now()
		s.Request(request(2, 1), r.op)
		got := <-r.ops
		if waited := time.Since(asked); waited != defaultRefusalGrace || got.Decisions[0].Reason != wire.NoSlot {
			t.Errorf("got %+v after %v; want no slot after %v", got, waited, defaultRefusalGrace)
		}
		asked = time.Now()
		s.Request(request(3, 1), r.op)
		waitTime(defaultRefusalGrace / 2)
		s.Return(returning(1), r.ret)
		got = <-r.ops
		if waited := time.Since(asked); waited != defaultRefusalGrace/2 || !granted(got) {
			t.Errorf("got %+v after %v; want it granted with the return, after %v", got, waited, defaultRefusalGrace/2)
		}
	})
}

// TestNothingLingersForItself: what an op would be granted cannot be given
// back before its answer.
func TestNothingLingersForItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, newFakeStore(100, 1))
		r := newReplies()
		op := request(1, 1)
		op.Needs = append(op.Needs, op.Needs[0])
		asked := time.Now()
		s.Request(op, r.op)
		got := <-r.ops
		if waited := time.Since(asked); waited != 0 || !got.Decisions[0].Granted || got.Decisions[1].Granted {
			t.Errorf("got %+v after %v; want one grant and one refusal at once", got.Decisions, waited)
		}
	})
}

// TestFirstComeFirstServed: the op that lingered is decided before one that
// comes in with the return.
func TestFirstComeFirstServed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(100, 1)
		s := start(t, store)
		first, second := newReplies(), newReplies()
		s.Request(request(1, 1), first.op)
		<-first.ops
		s.Request(request(2, 1), first.op)
		waitTime(0) // it lingers
		store.hold, store.begun = make(chan bool), make(chan bool, 10)
		s.Return(&wire.Return{Session: 9, Account: "other"}, first.ret)
		<-store.begun // the next two come in while a transaction runs, and so together
		s.Request(request(3, 1), second.op)
		s.Return(returning(1), second.ret)
		close(store.hold)
		if !granted(<-first.ops) {
			t.Error("the one that waited was refused")
		}
		if granted(<-second.ops) {
			t.Error("the one that came later was granted")
		}
	})
}

// TestRepeatedWhileLingering: every copy of a lingering op is answered, once,
// and with the same decision.
func TestRepeatedWhileLingering(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(100, 1)
		store.repeat = true
		s := start(t, store)
		r := newReplies()
		s.Request(request(1, 1), r.op)
		<-r.ops
		for range 3 {
			s.Request(request(2, 1), r.op)
			waitTime(defaultRefusalGrace / 4)
		}
		s.Return(returning(1), r.ret)
		waitTime(3 * defaultRefusalGrace)
		if len(r.ops) != 3 || len(r.returns) != 1 {
			t.Fatalf("%d answers to three copies and %d to a return", len(r.ops), len(r.returns))
		}
		want := <-r.ops
		for range 2 {
			if diff := cmp.Diff(want, <-r.ops); diff != "" || !granted(want) {
				t.Errorf("copies were answered differently, or refused:\n%s", diff)
			}
		}
		if p := store.state.Allocator.Pools[1]; p.Free != 90 {
			t.Errorf("%d free; want 90: three copies are one op", p.Free)
		}
	})
}

// TestBatchesGather: what comes in while a transaction runs is decided by the
// next one.
func TestBatchesGather(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(1_000_000, 1_000_000)
		store.hold, store.begun = make(chan bool), make(chan bool, 10)
		s := start(t, store)
		r := newReplies()
		s.Request(request(1, 1), r.op)
		<-store.begun
		for no := range int64(maxBatch + 10) {
			s.Request(request(2, no+1), r.op)
		}
		close(store.hold)
		for range maxBatch + 11 {
			<-r.ops
		}
		if diff := cmp.Diff([]int{1, maxBatch, 10}, store.sizes); diff != "" {
			t.Errorf("sizes of the batches (-want +got):\n%s", diff)
		}
	})
}

// TestEverythingIsAnsweredOnce counts the answers when the queue is full, when
// the store fails, and over a stop.
func TestEverythingIsAnsweredOnce(t *testing.T) {
	t.Parallel()
	statuses := func(r *replies) map[wire.Status]int {
		counts := map[wire.Status]int{}
		for len(r.ops) > 0 {
			counts[(<-r.ops).Status]++
		}
		for len(r.returns) > 0 {
			counts[(<-r.returns).Status]++
		}
		return counts
	}
	tests := []struct {
		name string
		run  func(t *testing.T, s *Service, store *fakeStore, r *replies)
		want map[wire.Status]int
	}{
		{"full queue", func(_ *testing.T, s *Service, _ *fakeStore, r *replies) {
			for no := range int64(maxQueue + 5) { // not started: nobody takes any out
				s.Request(request(1, no+1), r.op)
			}
		}, map[wire.Status]int{wire.Unavailable: 5}},
		{"failing store", func(t *testing.T, s *Service, store *fakeStore, r *replies) {
			store.fails = errStore
			s.Start(t.Context())
			s.Request(request(1, 1), r.op)
			s.Return(returning(1), r.ret)
			waitTime(time.Second)
			s.Stop()
		}, map[wire.Status]int{wire.Unavailable: 2}},
		{"stop while one lingers and another comes", func(t *testing.T, s *Service, _ *fakeStore, r *replies) {
			s.Start(t.Context())
			s.Request(request(1, 1), r.op)
			waitTime(0)
			s.Request(request(2, 1), r.op)
			waitTime(0)
			s.Stop()
			s.Request(request(3, 1), r.op)
			s.Return(returning(1), r.ret)
			waitTime(time.Second)
		}, map[wire.Status]int{wire.Done: 1, wire.Unavailable: 3}},
		{"stop while a transaction runs", func(t *testing.T, s *Service, store *fakeStore, r *replies) {
			store.hold, store.begun = make(chan bool), make(chan bool, 1)
			s.Start(t.Context())
			s.Request(request(1, 1), r.op)
			<-store.begun
			s.Request(request(2, 1), r.op)
			stopped := make(chan bool)
			go func() { s.Stop(); close(stopped) }()
			synctest.Wait()
			close(store.hold) // what is begun is committed and answered
			<-stopped
		}, map[wire.Status]int{wire.Done: 1, wire.Unavailable: 1}},
		{"session that is over", func(t *testing.T, s *Service, store *fakeStore, r *replies) {
			store.state.Sessions[1].State = session.Closed
			s.Start(t.Context())
			s.Request(request(1, 1), r.op)
			s.Return(returning(1), r.ret)
			waitTime(0)
			s.Stop()
		}, map[wire.Status]int{wire.Fenced: 2}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, r := newFakeStore(100, 1), newReplies()
				tt.run(t, newAnsweringService(store), store, r)
				if diff := cmp.Diff(tt.want, statuses(r)); diff != "" {
					t.Errorf("answers (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestStopWhileTheStoreHangs: a stop waits for one transaction at most, and not
// for its whole time; everything is answered.
func TestStopWhileTheStoreHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(1000, 1000)
		store.hold, store.begun = make(chan bool), make(chan bool, 10)
		s, r := newAnsweringService(store), newReplies()
		s.Start(t.Context())
		const ops = 3 * maxBatch
		for no := range int64(ops) {
			s.Request(request(2, no+1), r.op)
		}
		<-store.begun
		stopped := time.Now()
		s.Stop()
		if took := time.Since(stopped); took != stopTimeout {
			t.Errorf("the stop took %v; want %v", took, stopTimeout)
		}
		if len(r.ops) != ops {
			t.Errorf("%d of %d were answered", len(r.ops), ops)
		}
		for range ops {
			if got := (<-r.ops).Status; got != wire.Unavailable {
				t.Fatalf("got %s; want %s", got, wire.Unavailable)
			}
		}
	})
}

// An op that comes again before it is answered takes no room of its own: all
// who have sent it hear the one answer.
func TestRepeatedOpsJoin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(100, 5)
		store.hold, store.begun = make(chan bool), make(chan bool, 1)
		s := start(t, store)
		r := newReplies()
		s.Request(request(1, 1), r.op)
		<-store.begun
		const more = 2 * maxQueue // which would not fit otherwise
		for range more {
			s.Request(request(1, 1), r.op)
		}
		close(store.hold)
		for range 1 + more {
			if got := <-r.ops; !granted(got) {
				t.Fatalf("got %+v; want it granted", got)
			}
		}
		if diff := cmp.Diff([]int{1}, store.sizes); diff != "" {
			t.Errorf("batches (-want +got):\n%s", diff)
		}
		s.Request(request(1, 1), r.op) // one that is late gets what is stored
		<-store.begun
		if got := <-r.ops; !granted(got) {
			t.Errorf("got %+v; want it granted", got)
		}
	})
}

// TestNoRefusalWithoutAnAnswer: what a session has given back may be on its way
// for longer than an op lingers. As long as it has not said that all it holds is
// at work, nobody is refused for want of that.
func TestNoRefusalWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(100, 1)
		s := newAnsweringService(store)
		s.pusher.(*sessions).deaf.Store(true) //nolint:forcetypeassert // attentive has made it
		s.Start(t.Context())
		t.Cleanup(s.Stop)
		r := newReplies()
		s.Request(request(1, 1), r.op)
		if !granted(<-r.ops) {
			t.Fatal("the first request was refused")
		}
		asked := time.Now()
		s.Request(request(2, 1), r.op)
		got := <-r.ops
		if waited := time.Since(asked); waited != defaultRefusalGrace+recallTimeout || got.Status != wire.Wait {
			t.Errorf("got %+v after %v; want to be told to wait, after %v", got, waited, defaultRefusalGrace+recallTimeout)
		}
		s.Request(request(2, 1), r.op)
		waitTime(2 * defaultRefusalGrace)
		s.Return(returning(1), r.ret)
		if got := <-r.ops; !granted(got) {
			t.Errorf("got %+v; want it granted with what was on its way", got)
		}
	})
}
