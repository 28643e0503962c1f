package supervise

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fake is a process that ends when the test says so.
type fake struct {
	pid     int
	done    chan struct{}
	end     func()
	stopErr error
	// stoppedWith is the context of the call of Stop.
	stoppedWith context.Context
}

func newFake(pid int) *fake {
	done := make(chan struct{})
	return &fake{pid: pid, done: done, end: sync.OnceFunc(func() { close(done) })}
}

func (f *fake) PID() int              { return f.pid }
func (f *fake) Done() <-chan struct{} { return f.done }
func (f *fake) Stop(ctx context.Context) error {
	f.stoppedWith = ctx
	f.end()
	return f.stopErr
}

// script is a part whose starts return the listed results in turn.
type script struct {
	results []any // *fake or error
	// starts holds the times of the starts, relative to the first.
	starts  []time.Duration
	began   time.Time
	running []int
}

func (s *script) part() Part {
	s.began = time.Now()
	return Part{Name: "part", Start: func(ctx context.Context) (Process, error) {
		s.starts = append(s.starts, time.Since(s.began))
		if len(s.results) == 0 {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		result := s.results[0]
		s.results = s.results[1:]
		if err, ok := result.(error); ok {
			return nil, err
		}
		return result.(*fake), nil
	}}
}

func (s *script) observer(t *testing.T) Observer {
	return Observer{
		Running: func(_ string, pid int) { s.running = append(s.running, pid) },
		Printf:  func(format string, args ...any) { t.Logf(format, args...) },
	}
}

// pass advances the fake clock and waits for the timers that expire.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestKeepReturnsTheErrorOfTheFirstStart(t *testing.T) {
	t.Parallel()
	errStart := errors.New("no such program")
	s := &script{results: []any{errStart}}
	keeper, err := Keep(t.Context(), s.part(), s.observer(t))
	if keeper != nil || !errors.Is(err, errStart) {
		t.Errorf("got %v, %v; want only the error", keeper, err)
	}
}

func TestRestartsBackOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		errStart := errors.New("not yet")
		first, second, third := newFake(1), newFake(2), newFake(3)
		s := &script{results: []any{first, errStart, errStart, second, third}}
		keeper, err := Keep(t.Context(), s.part(), s.observer(t))
		if err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		first.end()
		pass(2 * time.Second)
		second.end() // it ran for 600 ms, too short to reset the backoff
		pass(time.Minute)

		want := []time.Duration{0, 60*time.Second + 200*time.Millisecond, 60*time.Second + 600*time.Millisecond, 61*time.Second + 400*time.Millisecond, 63*time.Second + 600*time.Millisecond}
		if fmt.Sprint(s.starts) != fmt.Sprint(want) {
			t.Errorf("started at %v; want %v", s.starts, want)
		}
		if fmt.Sprint(s.running) != "[1 2 3]" {
			t.Errorf("Running was called with %v; want 1, 2, 3", s.running)
		}
		if err := keeper.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if third.stoppedWith != t.Context() || second.stoppedWith != nil {
			t.Error("the third process was not stopped with the given context")
		}
	})
}

func TestLongRunResetsTheBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		results := []any{newFake(0)}
		for pid := range 3 {
			results = append(results, newFake(pid))
		}
		s := &script{results: append([]any{}, results...)}
		keeper, err := Keep(t.Context(), s.part(), s.observer(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, result := range results[:3] {
			pass(resetAfter)
			result.(*fake).end()
			pass(minBackoff)
		}
		if len(s.starts) != 4 {
			t.Errorf("started %d times; want 4, each after the shortest backoff", len(s.starts))
		}
		if err := keeper.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestStopDuringARestart(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]time.Duration{"in the pause": minBackoff / 2, "in the start": 2 * minBackoff} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				first := newFake(1)
				s := &script{results: []any{first}}
				keeper, err := Keep(t.Context(), s.part(), s.observer(t))
				if err != nil {
					t.Fatal(err)
				}
				first.end()
				pass(wait)
				if err := keeper.Stop(t.Context()); err != nil {
					t.Errorf("got %v; want nil", err)
				}
				if first.stoppedWith != nil {
					t.Error("a process that had ended was stopped")
				}
			})
		})
	}
}

func TestStopReturnsTheErrorOfTheProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		errStop := errors.New("exit status 3")
		process := newFake(1)
		process.stopErr = errStop
		s := &script{results: []any{process}}
		keeper, err := Keep(t.Context(), s.part(), s.observer(t))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := keeper.Stop(t.Context()); !errors.Is(err, errStop) {
				t.Errorf("got %v; want %v", err, errStop)
			}
		}
	})
}
