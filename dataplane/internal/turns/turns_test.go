package turns_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"modelgateway/dataplane/internal/turns"
)

func TestAccountWaitsForOneTurnOfEachOtherAccount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := turns.New(1)
		first := all.Of("noisy")
		first.Begin()
		var order []string // the turns run one after the other
		want := func(account string) {
			go func() {
				turn := all.Of(account)
				turn.Begin()
				order = append(order, account)
				turn.End()
			}()
			synctest.Wait()
		}
		for range 1000 {
			want("noisy")
		}
		want("quiet")
		want("quiet")
		want("other")
		if got := all.Waiting(); got != 1003 || len(order) != 0 {
			t.Fatalf("%d wait, %v have run", got, order)
		}
		if turn := all.Of("noisy"); turn.BeginWithin(1000) || turn.Running() {
			t.Error("an account got another turn although it has the most that may wait")
		}
		first.End()
		synctest.Wait()
		if got := order[:6]; !slices.Equal(got, []string{"noisy", "quiet", "other", "noisy", "quiet", "noisy"}) || len(order) != 1003 || all.Waiting() != 0 {
			t.Errorf("the first of %d turns: %v", len(order), got)
		}
	})
}

func TestYieldLetsOthersRunAndRunsAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := turns.New(1)
		long := all.Of("a")
		long.Begin()
		long.Yield() // nobody waits
		long.Begin() // it runs already
		ran := 0
		for _, account := range []string{"a", "b"} {
			go func() {
				turn := all.Of(account)
				turn.Begin()
				ran++
				turn.End()
			}()
		}
		synctest.Wait()
		if ran != 0 {
			t.Fatal("a turn runs beside another one")
		}
		long.Yield()
		if ran != 2 || !long.Running() {
			t.Errorf("%d have run, running %v", ran, long.Running())
		}
		long.End()
		long.End()
		again := all.Of("c")
		for range 2 {
			if !again.BeginWithin(0) {
				t.Error("a turn that need not wait was refused")
			}
		}
		again.End()
		var zero turns.Turn
		zero.Begin()
		zero.Yield()
		zero.End()
		if zero.Running() || turns.Processors() < 1 {
			t.Error("the zero value has a turn")
		}
	})
}
