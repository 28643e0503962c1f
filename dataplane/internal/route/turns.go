package route

import (
	"slices"
	"time"
)

const (
	// turnWindow is the interval in which turns and refusals are counted.
	turnWindow = time.Second
	// maxTurnWait is how long a request waits for its turn.
	maxTurnWait = 2 * time.Second
	// quietWindows is how many windows in a row must be without a refusal until a rate limit counts as over.
	quietWindows = 5
	// maxTurnDelay bounds how far turns may be behind their times: a late timer must not cause a burst.
	maxTurnDelay = 100 * time.Millisecond
)

// turns shares the calls that a rate-limited provider accepts among the accounts
// that want to make them: the calls are paced at the rate that the provider accepts,
// and accounts take turns, however many requests each of them has. It is a state
// machine without a clock and locks.
//
// In the first window every call is made, and counted. After a window with refusals
// the rate is what the provider has accepted in it, and at least half of the rate
// before. After a window without any it grows by a quarter if all turns were used.
// The limit is over if the first window has no refusal, or several later ones have
// none and nobody waits.
type turns struct {
	// rate is the number of turns in a window, zero in the first one.
	rate             int
	end              time.Time // of the window
	started, refused int       // in the window
	quiet            int       // windows without a refusal, in a row
	// next is the earliest time of the next turn.
	next time.Time
	// accounts has the accounts with waiting requests in the order of their turns.
	accounts []*waitingAccount
}

type waitingAccount struct {
	account string
	waiting []*waitingTurn
}

// waitingTurn is a request that waits for its turn.
type waitingTurn struct {
	account string
	// granted is closed when it has its turn.
	granted chan struct{}
}

func newTurns(now time.Time) *turns { return &turns{end: now.Add(turnWindow)} }

// interval is the time between two turns.
func (t *turns) interval() time.Duration { return turnWindow / time.Duration(t.rate) }

// advance ends the windows that are over.
func (t *turns) advance(now time.Time) {
	for !now.Before(t.end) {
		switch {
		case t.refused > 0:
			t.rate, t.quiet = max(t.started-t.refused, t.rate/2, 1), 0
		case t.rate == 0:
			t.rate, t.quiet = max(t.started, 1), quietWindows
		default:
			if t.quiet++; t.started >= t.rate || len(t.accounts) > 0 {
				t.rate += max(t.rate/4, 1)
			}
		}
		t.started, t.refused = 0, 0
		t.next = latest(t.next, t.end)
		if t.end = t.end.Add(turnWindow); t.quiet >= quietWindows && now.Sub(t.end) > turnWindow {
			t.end = now.Add(turnWindow) // nothing happened for long
		}
	}
}

// over reports whether the rate limit is over.
func (t *turns) over() bool { return t.quiet >= quietWindows && len(t.accounts) == 0 }

// take gives a request of an account its turn, if it need not wait.
func (t *turns) take(now time.Time) bool {
	t.advance(now)
	if len(t.accounts) > 0 || t.rate > 0 && now.Before(t.next) {
		return false
	}
	t.start(now)
	return true
}

func (t *turns) start(now time.Time) {
	t.started++
	if t.rate > 0 {
		t.next = latest(t.next, now.Add(-maxTurnDelay)).Add(t.interval())
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// wait makes a request wait for its turn. It returns nil if the account already has
// as many waiting requests as can have their turns in time.
func (t *turns) wait(account string) *waitingTurn {
	i := slices.IndexFunc(t.accounts, func(a *waitingAccount) bool { return a.account == account })
	if i < 0 {
		i = len(t.accounts)
		t.accounts = append(t.accounts, &waitingAccount{account: account})
	}
	a := t.accounts[i]
	if ahead := time.Duration(len(a.waiting)*len(t.accounts)) * t.interval(); ahead > maxTurnWait {
		return nil
	}
	w := &waitingTurn{account: account, granted: make(chan struct{})}
	a.waiting = append(a.waiting, w)
	return w
}

// cancel ends the wait of a request. It returns false if it has its turn already.
func (t *turns) cancel(w *waitingTurn) bool {
	for i, a := range t.accounts {
		if j := slices.Index(a.waiting, w); j >= 0 {
			if a.waiting = slices.Delete(a.waiting, j, j+1); len(a.waiting) == 0 {
				t.accounts = slices.Delete(t.accounts, i, i+1)
			}
			return true
		}
	}
	return false
}

// grant gives waiting requests their turns. It returns when it must be called again,
// zero if no request waits.
func (t *turns) grant(now time.Time) (wake time.Time) {
	t.advance(now)
	for len(t.accounts) > 0 && !now.Before(t.next) {
		a := t.accounts[0]
		t.accounts = slices.Delete(t.accounts, 0, 1)
		w := a.waiting[0]
		if a.waiting = slices.Delete(a.waiting, 0, 1); len(a.waiting) > 0 {
			t.accounts = append(t.accounts, a)
		}
		t.start(now)
		close(w.granted)
	}
	if len(t.accounts) == 0 {
		return time.Time{}
	}
	return t.next
}

// refuse records that the provider has refused a call.
func (t *turns) refuse(now time.Time) {
	t.advance(now)
	t.refused++
}
