package route

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/dataplane/internal/catalog"
	"modelgateway/shared/catalogkv"
)

// limitedProvider accepts a number of calls in each second.
type limitedProvider struct {
	perSecond int
	second    time.Time
	accepted  int
}

func (p *limitedProvider) accepts(now time.Time) bool {
	if second := now.Truncate(time.Second); second != p.second {
		p.second, p.accepted = second, 0
	}
	p.accepted++
	return p.accepted <= p.perSecond
}

// load simulates a minute of requests: noisy has always as many as may wait, quiet has one every 400 ms. It returns how
// many requests of each the provider accepted in the last 50 seconds, and the longest wait of quiet.
func load(perSecond int) (noisy, quiet int, longest time.Duration) {
	begun := time.Unix(1000, 0)
	provider := &limitedProvider{perSecond: perSecond}
	t := newTurns(begun)
	waiting := map[*waitingTurn]time.Time{}
	served := map[string]int{}
	call := func(account string, now time.Time) {
		if !provider.accepts(now) {
			t.refuse(now)
		} else if now.Sub(begun) > 10*time.Second {
			served[account]++
		}
	}
	for ms := range 60_000 {
		now := begun.Add(time.Duration(ms) * time.Millisecond)
		t.grant(now)
		for w, since := range waiting {
			select {
			case <-w.granted:
				if w.account == "quiet" {
					longest = max(longest, now.Sub(since))
				}
				delete(waiting, w)
				call(w.account, now)
			default:
			}
		}
		accounts := []string{"noisy"}
		if ms%400 == 0 {
			accounts = append(accounts, "quiet")
		}
		for _, account := range accounts {
			if t.take(now) {
				call(account, now)
			} else if w := t.wait(account); w != nil {
				waiting[w] = now
			}
		}
	}
	return served["noisy"], served["quiet"], longest
}

// 125 requests of the quiet account come in the 50 seconds that count. Before there were turns, it got its share of all
// requests, which is less than one in a hundred.
func TestOneAccountsFloodLeavesAShareOfTheProvidersRate(t *testing.T) {
	t.Parallel()
	for _, perSecond := range []int{6, 50} {
		noisy, quiet, longest := load(perSecond)
		t.Logf("%d a second: %d of noisy, %d of 125 of quiet, which waited %s at most", perSecond, noisy, quiet, longest)
		if quiet < 100 {
			t.Errorf("%d a second: %d of 125 requests of the quiet account were served; want most", perSecond, quiet)
		}
		if sum := noisy + quiet; sum < 50*perSecond*3/4 {
			t.Errorf("%d a second: %d calls were accepted; want at least three quarters of %d", perSecond, sum, 50*perSecond)
		}
		if longest > maxTurnWait {
			t.Errorf("%d a second: a request of the quiet account waited %s", perSecond, longest)
		}
	}
}

// The noisy account has a thousand requests, and waits for longer than the others.
func TestAccountsTakeTurns(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	q := newTurns(now)
	for range 1000 {
		if !q.take(now) {
			t.Fatal("a call of the first window was held back")
		}
	}
	for range 400 {
		q.refuse(now)
	}
	now = now.Add(turnWindow)
	if !q.take(now) || q.rate != 600 || q.take(now) {
		t.Errorf("rate %d; want the 600 that were accepted, one at a time", q.rate)
	}
	names := map[*waitingTurn]string{}
	for i := range 1000 {
		if w := q.wait("noisy"); w != nil {
			names[w] = fmt.Sprint("noisy", i)
		}
	}
	for _, account := range []string{"b", "c"} {
		names[q.wait(account)] = account
	}
	given := map[string]time.Duration{}
	for step := range 10 {
		at := now.Add(time.Duration(step) * q.interval())
		q.grant(at)
		for w, name := range names {
			select {
			case <-w.granted:
				given[name] = at.Sub(now)
				delete(names, w)
			default:
			}
		}
	}
	want := map[string]time.Duration{}
	for i, account := range []string{"noisy0", "b", "c", "noisy1", "noisy2", "noisy3", "noisy4", "noisy5", "noisy6"} {
		want[account] = time.Duration(i+1) * q.interval()
	}
	if diff := cmp.Diff(want, given); diff != "" {
		t.Errorf("turns (-want +got):\n%s", diff)
	}
}

func TestLimitIsOverAfterWindowsWithoutRefusal(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	q := newTurns(now)
	if q.advance(now.Add(turnWindow)); !q.over() {
		t.Error("a single refusal is a limit for longer than a window")
	}
	q = newTurns(now)
	q.take(now)
	q.refuse(now)
	for i := range quietWindows {
		if q.advance(now.Add(time.Duration(i+1) * turnWindow)); q.over() {
			t.Errorf("the limit is over after %d windows without a refusal; want %d", i, quietWindows)
		}
	}
	if q.advance(now.Add((quietWindows + 1) * turnWindow)); !q.over() {
		t.Error("the limit is not over")
	}
}

func limitedChoice() Choice {
	return Choice{Route: &catalog.Route{Route: catalogkv.Route{ID: "r"}}, Credential: catalog.NewCredential("c", "")}
}

// Many goroutines of two accounts call a route of a limited provider.
func TestAwaitTurnBoundsWaitsAndForgetsLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, c := New(nil), limitedChoice()
		if turn, ok := p.AwaitTurn(t.Context(), c, "noisy", true); !ok || p.limits.count.Load() != 0 {
			t.Fatal("a call without a rate limit was held back")
		} else {
			turn.Refused()
		}
		var quiet, refused atomic.Int64
		var wg sync.WaitGroup
		provider := &limitedProvider{perSecond: 10}
		var mu sync.Mutex
		ask := func(account string, wait bool) {
			begun := time.Now()
			turn, ok := p.AwaitTurn(t.Context(), c, account, wait)
			if took := time.Since(begun); took > maxTurnWait || !wait && took > 0 {
				t.Errorf("%s waited %s", account, took)
			}
			if !ok {
				refused.Add(1)
				return
			}
			mu.Lock()
			accepted := provider.accepts(time.Now())
			mu.Unlock()
			if !accepted {
				turn.Refused()
			} else if account == "quiet" {
				quiet.Add(1)
			}
		}
		for range 20 {
			for range 100 {
				wg.Go(func() { ask("noisy", true) })
			}
			wg.Go(func() { ask("noisy", false) })
			time.Sleep(500 * time.Millisecond)
			wg.Go(func() { ask("quiet", true) })
			time.Sleep(500 * time.Millisecond)
		}
		wg.Wait()
		if quiet.Load() < 17 || refused.Load() == 0 {
			t.Errorf("%d of 20 requests of the quiet account were served, %d had no turn; want almost all served", quiet.Load(), refused.Load())
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		p.AwaitTurn(ctx, c, "gone", true)
		time.Sleep((quietWindows + 2) * turnWindow)
		if _, ok := p.AwaitTurn(t.Context(), c, "noisy", false); !ok || p.limits.count.Load() != 0 {
			t.Errorf("%d limits are in force; want none", p.limits.count.Load())
		}
	})
}
