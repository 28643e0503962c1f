package change

import (
	"context"
	"sync"

	"modelgateway/shared/wire"
)

// Tracker notes what was changed under a context, so that whoever asked for it
// can wait until proxies act by it.
type Tracker struct {
	mu sync.Mutex
	// last is the newest change of keys and accounts, nil if there was none.
	last       *wire.KeyChange
	catalogRev int64
}

type trackerKey struct{}

// Track returns a context under which changes are noted.
func Track(ctx context.Context) (context.Context, *Tracker) {
	t := &Tracker{}
	return context.WithValue(ctx, trackerKey{}, t), t
}

// Made notes a change of a key or an account. A transaction that is run again
// may note it twice, under another revision: the newest counts.
func Made(ctx context.Context, c wire.KeyChange) {
	if t, ok := ctx.Value(trackerKey{}).(*Tracker); ok {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.last == nil || t.last.Revision < c.Revision {
			t.last = &c
		}
	}
}

// MadeCatalog notes a change of the catalog, or that it is at a revision as it
// should be.
func MadeCatalog(ctx context.Context, rev int64) {
	if t, ok := ctx.Value(trackerKey{}).(*Tracker); ok {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.catalogRev = max(t.catalogRev, rev)
	}
}

// Noted returns the newest change of keys and accounts, or nil, and the newest
// revision of the catalog, or zero.
func (t *Tracker) Noted() (last *wire.KeyChange, catalogRev int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last, t.catalogRev
}
