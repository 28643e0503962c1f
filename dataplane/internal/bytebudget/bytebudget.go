// Package bytebudget bounds the memory of the bodies that a proxy holds: request bodies with the lists of their members,
// answers in one piece, and large events of streams.
//
// A body takes its bytes before it allocates them. Bodies of up to Small bytes only count; larger ones also count for
// their account, which has a share of the budget. A part of the budget is left to small bodies, so that large ones
// never keep them out. Each answer and event counts once although its rewritten copy needs the same memory again: the size of
// the budget must leave room for that.
package bytebudget

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// Small is the size in bytes up to which a body does not count for its account.
	Small = 16 << 10
	// MinSize is the smallest size of a budget in bytes: it has room for the largest request body.
	MinSize = 80 << 20
	// smallShare is the part of the budget that only small bodies may use: one in smallShare bytes.
	smallShare = 8
)

var (
	// ErrFull says that the budget has no room for the body now.
	ErrFull = errors.New("bytebudget: the budget for bodies is used up")
	// ErrShare says that the account uses up its share of the budget.
	ErrShare = errors.New("bytebudget: the account uses up its share of the budget for bodies")
	// ErrTooLarge says that the body is larger than the budget.
	ErrTooLarge = errors.New("bytebudget: the body is larger than the budget for bodies")
)

// Budget is safe for concurrent use.
type Budget struct {
	size  int64
	large int64 // what large bodies may use
	share int64 // what the large bodies of one account may use
	used  atomic.Int64

	// waiting is the length of queue, for the release of small bodies, which takes no lock.
	waiting  atomic.Int32
	mu       sync.Mutex
	accounts map[string]int64 // the bytes of large bodies
	queue    []*waiter
	// full reports whether one of the queue waits for room that other accounts have. Those that wait for the share of their
	// own account are no reason to refuse others.
	full     bool
	refusals refusals
}

// waiter is a large body that waits for room.
type waiter struct {
	grant *Grant
	to    int64
	ready chan struct{}
}

// New returns a Budget of size bytes, of which each account has a share between 0 and 1.
func New(size int64, share float64) *Budget {
	return &Budget{
		size:     size,
		large:    size - size/smallShare,
		share:    int64(float64(size) * share),
		accounts: map[string]int64{},
		refusals: newRefusals(),
	}
}

// Used returns the bytes that bodies hold now.
func (b *Budget) Used() int64 { return b.used.Load() }

// Grant holds the bytes of one body. One goroutine uses it at a time.
type Grant struct {
	budget  *Budget
	account string
	bytes   int64
}

// Sibling returns a Grant without bytes for the same account.
func (g *Grant) Sibling() Grant { return Grant{budget: g.budget, account: g.account} }

// Begin returns a Grant without bytes.
func (b *Budget) Begin(account string) Grant { return Grant{budget: b, account: account} }

// Grow grows the grant to a number of bytes at once, or returns ErrFull, ErrShare or ErrTooLarge. After an error the
// grant is unchanged.
func (g *Grant) Grow(to int64) error {
	b := g.budget
	if to <= g.bytes {
		return nil
	}

	if to <= Small {
		if b.used.Add(to-g.bytes) > b.size {
			b.used.Add(g.bytes - to)
			return b.refusals.count(ErrFull)
		}
		g.bytes = to
		return nil
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	if b.full {
		return b.refusals.count(ErrFull) // those that wait have been served by a provider already
	}

	return b.refusals.count(b.grow(g, to))
}

// Await is Grow that waits for room, up to a time limit. Bodies that wait are served in their order, except that those
// whose account uses up its share are passed over. yield is called before the wait: it gives back what the caller can do
// without, which may be what the account has no room for.
func (g *Grant) Await(to int64, limit time.Duration, yield func()) error {
	if to <= Small {
		return g.Grow(to)
	}

	b := g.budget
	switch {
	case to <= g.bytes:
		return nil
	case to > b.large: // no wait would help
		return b.refusals.count(ErrTooLarge)
	}

	w := &waiter{grant: g, to: to, ready: make(chan struct{})}
	b.mu.Lock()
	b.queue = append(b.queue, w)
	b.waiting.Store(int32(len(b.queue)))
	b.serve()
	b.mu.Unlock()

	select {
	case <-w.ready:
		return nil
	default:
		yield()
	}

	timer := time.NewTimer(limit)
	defer timer.Stop()

	select {
	case <-w.ready:
		return nil
	case <-timer.C:
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	at := slices.Index(b.queue, w)
	if at < 0 {
		return nil // served meanwhile
	}

	err := b.fits(g, to)
	if err == nil {
		err = ErrFull // there is room, but others have waited for longer
	}

	b.queue = slices.Delete(b.queue, at, at+1)
	b.serve()
	return b.refusals.count(err)
}

// Release gives all bytes back. A second call has no effect.
func (g *Grant) Release() {
	b := g.budget
	if g.bytes == 0 {
		return
	}

	if g.bytes > Small {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.accounts[g.account] -= g.bytes; b.accounts[g.account] == 0 {
			delete(b.accounts, g.account)
		}
		b.used.Add(-g.bytes)
		b.serve()
	} else if b.used.Add(-g.bytes); b.waiting.Load() > 0 {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.serve()
	}

	g.bytes = 0
}

// fits returns the reason why a large body has no room. The caller holds the lock.
func (b *Budget) fits(g *Grant, to int64) error {
	own := g.bytes
	if own <= Small {
		own = 0 // not counted for the account
	}
	others := b.accounts[g.account] - own
	switch {
	case to > b.large:
		return ErrTooLarge
	case others > 0 && others+to > b.share: // the only body of an account may be larger than its share
		return ErrShare
	case b.used.Load()+to-g.bytes > b.large:
		return ErrFull
	}
	return nil
}

// grow grows the grant of a large body. The caller holds the lock.
func (b *Budget) grow(g *Grant, to int64) error {
	if err := b.fits(g, to); err != nil {
		return err
	}
	b.used.Add(to - g.bytes)
	if g.bytes > Small {
		b.accounts[g.account] -= g.bytes
	}
	b.accounts[g.account] += to
	g.bytes = to
	return nil
}

// serve grows the grants that wait, in their order, until one has to wait for other accounts. The caller holds the
// lock.
func (b *Budget) serve() {
	b.full = false
	b.queue = slices.DeleteFunc(b.queue, func(w *waiter) bool {
		if b.full {
			return false
		}
		err := b.grow(w.grant, w.to)
		if err == nil {
			close(w.ready)
		}
		b.full = errors.Is(err, ErrFull)
		return err == nil
	})
	b.waiting.Store(int32(len(b.queue)))
}
