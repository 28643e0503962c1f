// Package turns shares the processors among accounts: the work on large request bodies (reading, decompressing, parsing)
// is done in turns. Only so many turns run at the same time, and accounts take turns, so that a body waits for at most
// one turn of each other account, however many bodies that account sends.
//
// Small bodies take no turns: they are so little work that counting it would cost more.
package turns

import (
	"math"
	"runtime"
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

// Yield lets a waiting turn run instead, if there is one, and waits until this turn runs again.
func (t *Turn) Yield() {
	if t.running && t.turns.Waiting() > 0 {
		t.End()
		t.Begin()
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
	a := t.accounts[w.account]
	if a != nil && len(a.turns) >= most {
		return refused
	}
	if w.granted == nil {
		w.granted = make(chan struct{}, 1)
	}
	if a == nil {
		a = &account{name: w.account}
		t.accounts[w.account] = a
		t.order = append(t.order, a)
	}
	a.turns = append(a.turns, w)
	t.waiting.Add(1)
	return waits
}

// pass lets the next turn run in the place of one that has ended.
func (t *Turns) pass() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.order) == 0 {
		t.free++
		return
	}
	a := t.order[0]
	t.order = t.order[1:]
	w := a.turns[0]
	if a.turns = a.turns[1:]; len(a.turns) > 0 {
		t.order = append(t.order, a)
	} else {
		delete(t.accounts, a.name)
	}
	t.waiting.Add(-1)
	w.granted <- struct{}{} // it has room for one: a turn waits for one grant at a time
}
