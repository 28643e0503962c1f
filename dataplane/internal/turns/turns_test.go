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

func TestYieldLetsOtherAccountsRunAndRunsAgainBeforeItsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := turns.New(1)
		long := all.Of("a")
		long.Begin()
		long.Yield() // nobody waits
		long.Begin() // it runs already
		var ran []string
		begin := func(account string) {
			go func() {
				turn := all.Of(account)
				turn.Begin()
				ran = append(ran, account)
				turn.End()
			}()
			synctest.Wait()
		}
		begin("a")
		begin("a")
		long.Yield() // only its own account waits
		if len(ran) != 0 {
			t.Fatalf("%v ran instead of a turn of the same account, or beside it", ran)
		}
		begin("b")
		begin("c")
		begin("b")
		for _, want := range [][]string{{"b"}, {"b", "c", "b"}, {"b", "c", "b"}} {
			long.Yield()
			if !slices.Equal(ran, want) || !long.Running() {
				t.Errorf("%v have run, running %v; want %v", ran, long.Running(), want)
			}
		}
		long.End()
		long.End()
		synctest.Wait()
		if want := []string{"b", "c", "b", "a", "a"}; !slices.Equal(ran, want) || all.Waiting() != 0 {
			t.Errorf("%v have run, %d wait; want %v", ran, all.Waiting(), want)
		}
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
