// Package turns shares the processors among accounts: the work on large request bodies (reading, decompressing, parsing)
// is done in turns. Only so many turns run at the same time, and accounts take turns, so that a body waits for at most
// one turn of each other account, however many bodies that account sends.
//
// Small bodies take no turns: they are so little work that counting it would cost more.
package turns

import (
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// Turns is safe for concurrent use.
type Turns struct {
	waiting  atomic.Int64
	mu       sync.Mutex
	free     int
	accounts map[string]*account
	// order has the accounts with waiting turns; the first one is next.
	order []*account
}

// account has the waiting turns of one account, in their order.
type account struct {
	name  string
	turns []*Turn
}

// New returns Turns of which n run at the same time.
func New(n int) *Turns { return &Turns{free: n, accounts: map[string]*account{}} }

// Processors returns how many turns should run at the same time: one less than there are processors, so that one always
// looks for new requests and serves the small ones.
func Processors() int { return max(runtime.GOMAXPROCS(0)-1, 1) }

// Waiting returns how many turns wait.
func (t *Turns) Waiting() int64 { return t.waiting.Load() }

// Turn is the work on one body. One goroutine uses it at a time. While it runs, the goroutine must not wait for anything
// but the processor. All methods do nothing on the zero value.
type Turn struct {
	turns   *Turns
	account string
	running bool
	granted chan struct{}
}

// Of returns a Turn that does not run yet.
func (t *Turns) Of(account string) Turn { return Turn{turns: t, account: account} }

// Running reports whether the turn runs.
func (t *Turn) Running() bool { return t.running }

// Begin waits until the turn runs. It does nothing if it runs already.
func (t *Turn) Begin() { t.BeginWithin(math.MaxInt) }

// BeginWithin is Begin, unless the turn would have to wait and most turns of the account wait already. It reports
// whether the turn runs.
func (t *Turn) BeginWithin(most int) bool {
	if t.running || t.turns == nil {
		return t.running
	}
	switch t.turns.take(t, most) {
	case refused:
		return false
	case waits:
		<-t.granted
	case runs:
	}
	t.running = true
	return true
}

// End ends a turn that runs; Begin may follow.
func (t *Turn) End() {
	if t.running {
		t.running = false
		t.turns.pass()
	}
}

// Yield lets a waiting turn of another account run instead, if there is one, and waits until this turn runs again, before
// the other turns of its account. Turns of the same account do not take the place of each other: that would only be work,
// and more bodies would be in memory.
func (t *Turn) Yield() {
	if t.running && t.turns.Waiting() > 0 && t.turns.yield(t) {
		<-t.granted
	}
}

// verdict is the answer to a turn that wants to run.
type verdict int

const (
	runs verdict = iota
	waits
	refused
)

func (t *Turns) take(w *Turn, most int) verdict {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.free > 0 {
		t.free--
		return runs
	}
	if a := t.accounts[w.account]; a != nil && len(a.turns) >= most {
		return refused
	}
	a := t.enter(w)
	a.turns = append(a.turns, w)
	return waits
}

// enter prepares a turn for waiting and returns its account. The caller adds the turn to those of the account.
func (t *Turns) enter(w *Turn) *account {
	if w.granted == nil {
		w.granted = make(chan struct{}, 1)
	}
	a := t.accounts[w.account]
	if a == nil {
		a = &account{name: w.account}
		t.accounts[w.account] = a
		t.order = append(t.order, a)
	}
	t.waiting.Add(1)
	return a
}

// yield lets a waiting turn of another account run in the place of w, which then waits. It reports whether there was one.
func (t *Turns) yield(w *Turn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.IndexFunc(t.order, func(a *account) bool { return a.name != w.account })
	if i < 0 {
		return false
	}
	a := t.enter(w)
	a.turns = slices.Insert(a.turns, 0, w)
	t.grant(i)
	return true
}

// pass lets the next turn run in the place of one that has ended.
func (t *Turns) pass() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.order) == 0 {
		t.free++
		return
	}
	t.grant(0)
}

// grant lets the first turn of the i-th waiting account run. The account is the last one then.
func (t *Turns) grant(i int) {
	a := t.order[i]
	t.order = slices.Delete(t.order, i, i+1)
	w := a.turns[0]
	if a.turns = a.turns[1:]; len(a.turns) > 0 {
		t.order = append(t.order, a)
	} else {
		delete(t.accounts, a.name)
	}
	t.waiting.Add(-1)
	w.granted <- struct{}{} // it has room for one: a turn waits for one grant at a time
}
