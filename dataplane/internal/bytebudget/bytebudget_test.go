package bytebudget

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const mib = 1 << 20

func grow(t *testing.T, b *Budget, account string, to int64, want error) *Grant {
	t.Helper()
	g := b.Begin(account)
	if err := g.Grow(to); !errors.Is(err, want) {
		t.Fatalf("%s grows to %d: got %v; want %v", account, to, err, want)
	}
	return &g
}

func TestAccountUsesNoMoreThanItsShare(t *testing.T) {
	t.Parallel()
	b := New(80*mib, 0.25)
	first := grow(t, b, "a", 15*mib, nil)
	grow(t, b, "a", 6*mib, ErrShare)
	second := grow(t, b, "a", 5*mib, nil)
	if err := second.Grow(6 * mib); !errors.Is(err, ErrShare) {
		t.Errorf("got %v; want ErrShare", err)
	}
	grow(t, b, "a", Small, nil).Release() // a small body does not count for the account
	other := grow(t, b, "b", 40*mib, nil) // its only body may be larger than its share
	grow(t, b, "c", 20*mib, ErrFull)
	grow(t, b, "c", 71*mib, ErrTooLarge)
	for _, g := range []*Grant{first, second, other} {
		g.Release()
		g.Release()
	}
	if used := b.Used(); used != 0 || len(b.accounts) != 0 {
		t.Errorf("%d bytes are in use, and %d accounts are known", used, len(b.accounts))
	}
}

func TestLargeBodiesLeaveRoomForSmallOnes(t *testing.T) {
	t.Parallel()
	b := New(80*mib, 1)
	grow(t, b, "a", 70*mib, nil)
	grow(t, b, "b", Small+1, ErrFull)
	for range 10 * mib / Small {
		grow(t, b, "b", Small, nil)
	}
	grow(t, b, "b", 1, ErrFull)
}

func TestBodiesWaitInTheirOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := New(80*mib, 0.5)
		running := grow(t, b, "a", 30*mib, nil)
		began := time.Now()
		if never := b.Begin("e"); !errors.Is(never.Await(71*mib, time.Hour, func() {}), ErrTooLarge) || time.Since(began) > 0 {
			t.Error("a body that never fits waits")
		}
		var order []string
		var waiting sync.WaitGroup
		await := func(account string, to int64, limit time.Duration, want error) {
			waiting.Go(func() {
				g := b.Begin(account)
				if err := g.Await(to, limit, func() {}); !errors.Is(err, want) {
					t.Errorf("%s: got %v; want %v", account, err, want)
				}
				order = append(order, account)
				g.Release()
			})
			synctest.Wait()
		}
		await("a", 20*mib, time.Hour, nil) // over the share of a
		await("b", 60*mib, time.Hour, nil)
		await("c", 30*mib, time.Minute, ErrFull) // behind b
		grow(t, b, "d", 1*mib, ErrFull)          // behind those that wait
		time.Sleep(time.Minute)
		synctest.Wait()
		await("d", 20*mib, time.Minute, nil)
		running.Release()
		waiting.Wait()
		if len(order) != 4 || order[0] != "c" || order[3] != "d" {
			t.Errorf("served in the order %v", order)
		}
		if b.Used() != 0 {
			t.Errorf("%d bytes are in use", b.Used())
		}
	})
}

// Only those that wait for the room of others come first.
func TestBodiesThatWaitForTheShareOfTheirAccountDoNotKeepOthersOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := New(80*mib, 0.25)
		held := grow(t, b, "greedy", 20*mib, nil)
		served := make(chan error)
		for range 4 {
			go func() {
				g := b.Begin("greedy")
				err := g.Await(1*mib, 15*time.Second, func() {})
				g.Release()
				served <- err
			}()
		}
		synctest.Wait()
		for range 5 {
			grow(t, b, "victim", 10*mib, nil).Release()
		}
		grow(t, b, "greedy", 1*mib, ErrShare)

		held.Release()
		for range 4 {
			if err := <-served; err != nil {
				t.Errorf("a body that waited for its account's share: %v", err)
			}
		}
	})
}

func TestBodyGivesBackWhatItCanDoWithoutBeforeItWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := New(80*mib, 0.25)
		request := grow(t, b, "a", 20*mib, nil)
		answer := b.Begin("a")
		began := time.Now()
		if err := answer.Await(1*mib, 15*time.Second, request.Release); err != nil || time.Since(began) > 0 {
			t.Errorf("got %v after %s", err, time.Since(began))
		}
		if err := answer.Await(2*mib, 15*time.Second, func() { t.Error("a body with room gave something back") }); err != nil {
			t.Errorf("got %v", err)
		}
		answer.Release()
	})
}

// Whatever accounts do, the budget holds, and nothing is left at the end.
func TestBudgetHoldsUnderConcurrentUse(t *testing.T) {
	t.Parallel()
	b := New(80*mib, 0.25)
	var users sync.WaitGroup
	for user := range 32 {
		users.Go(func() {
			r := rand.New(rand.NewPCG(7, uint64(user)))
			for range 300 {
				g := b.Begin(string(rune('a' + user%5)))
				for to := int64(0); to < 70*mib; to += 1 + r.Int64N(8*mib)*r.Int64N(2) {
					err := g.Grow(to)
					if err != nil && r.IntN(4) == 0 {
						err = g.Await(to, time.Duration(r.IntN(100))*time.Microsecond, func() {})
					}
					if used := b.Used(); used > b.size+32*Small { // a small body counts before it is refused
						t.Errorf("%d bytes are in use", used)
					}
					if err != nil || r.IntN(10) == 0 {
						break
					}
				}
				g.Release()
			}
		})
	}
	users.Wait()
	if b.Used() != 0 || len(b.accounts) != 0 || len(b.queue) != 0 || b.waiting.Load() != 0 {
		t.Errorf("left: %d bytes, accounts %v, %d wait", b.Used(), b.accounts, len(b.queue))
	}
}

func TestPerAccountBoundsEachAccount(t *testing.T) {
	t.Parallel()
	var p PerAccount
	for i, want := range []bool{true, true, false} {
		if got := p.Enter("a", 2); got != want {
			t.Errorf("%d are there, and another one enters: %v", i, got)
		}
	}
	if !p.Enter("b", 1) || p.Enter("c", 0) {
		t.Error("the bound does not hold for each account by itself")
	}
	p.Leave("a")
	if !p.Enter("a", 2) {
		t.Error("nothing is free after Leave")
	}
	p.Leave("a")
	p.Leave("a")
	p.Leave("b")
	if len(p.n) != 0 {
		t.Errorf("left: %v", p.n)
	}
}

func BenchmarkSmallBody(b *testing.B) {
	budget := New(MinSize, 0.25)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			g := budget.Begin("acc_1")
			_ = g.Grow(1000)
			g.Release()
		}
	})
}

func BenchmarkLargeBody(b *testing.B) {
	budget := New(MinSize, 0.25)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			g := budget.Begin("acc_1")
			_ = g.Grow(20_000)
			g.Release()
		}
	})
}
