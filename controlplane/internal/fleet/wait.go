package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"modelgateway/controlplane/internal/propagation"
	"modelgateway/shared/wire"
)

// Applied reports how far the changes of a request have propagated.
type Applied struct {
	// By are the names of the live proxies that have applied them, sorted. A proxy has applied them if all its sessions have.
	By []string
	// Pending are the names of the other live proxies, sorted.
	Pending []string
}

// ChangeStore reads the fleet and the newest change.
type ChangeStore interface {
	Store
	// LastChange returns the newest change of keys and accounts; nil if there is none.
	LastChange(ctx context.Context) (*wire.KeyChange, error)
}

// Waiter waits until every live proxy has applied a change.
type Waiter struct {
	store     ChangeStore
	announcer propagation.Announcer
	log       *slog.Logger
}

// NewWaiter returns a Waiter.
func NewWaiter(store ChangeStore, announcer propagation.Announcer, log *slog.Logger) *Waiter {
	return &Waiter{store, announcer, log}
}

const (
	// Proxies report what they have applied within milliseconds, so the first checks are frequent.
	firstPause = 20 * time.Millisecond
	maxPause   = 250 * time.Millisecond
	// readTimeout bounds one read of the fleet.
	readTimeout = 2 * time.Second
)

// target is the state that every proxy should reach.
type target struct {
	rev, catalogRev int64
	// waiting are the sessions that may not have applied rev: if known is set, all others have confirmed it.
	known   bool
	waiting []wire.SessionID
}

// Wait waits until every live proxy has applied the changes, or the context
// ends, which is no error. If there are no changes, because the request changed
// nothing or repeats another one, it waits for all earlier changes.
func (w *Waiter) Wait(ctx context.Context, changes propagation.Changes) (Applied, error) {
	t := target{catalogRev: changes.CatalogRev}
	if changes.Key != nil {
		t.rev, t.known = changes.Key.Revision, changes.Effective
		if !changes.Effective {
			t.waiting, t.known = w.confirm(ctx, *changes.Key)
		}
	}

	if changes.Empty() {
		f, err := w.fleet(ctx)
		if err != nil {
			return Applied{}, err
		}
		t.rev, t.catalogRev = f.Rev, f.CatalogRev
		if err := w.confirmLast(ctx, f, &t); err != nil {
			return Applied{}, err
		}
	}

	for pause := firstPause; ; pause = min(pause*3/2, maxPause) {
		applied, err := w.check(ctx, &t)
		if err != nil || len(applied.Pending) == 0 || ctx.Err() != nil {
			return applied, err
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// confirmLast announces the newest change again if a live proxy may not have applied it. Waiting
// for its next heartbeat would take longer.
func (w *Waiter) confirmLast(ctx context.Context, f Fleet, t *target) error {
	if !slices.ContainsFunc(f.Proxies, func(d Proxy) bool { return d.State == Active && d.AppliedRev < f.Rev }) {
		return nil
	}
	reading, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	last, err := w.store.LastChange(reading)
	if err != nil {
		return fmt.Errorf("read the newest change: %w", err)
	}
	if last != nil {
		t.rev = last.Revision
		t.waiting, t.known = w.confirm(ctx, *last)
	}
	return nil
}

// confirm announces a change until every proxy has confirmed it or the context ends, and returns
// the sessions that have not. known is false if these are unknown.
func (w *Waiter) confirm(ctx context.Context, c wire.KeyChange) (waiting []wire.SessionID, known bool) {
	for {
		confirmed, err := w.announcer.Announce(ctx, c)
		if err != nil {
			w.log.WarnContext(ctx, "announcing a change failed", "rev", c.Revision, "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(maxPause):
			}
		}
		if (err == nil && confirmed.Effective) || ctx.Err() != nil {
			for _, s := range confirmed.Waiting {
				waiting = append(waiting, s.Session)
			}
			return waiting, err == nil && (confirmed.Effective || len(confirmed.Waiting) > 0)
		}
	}
}

// fleet reads the fleet, even if the context has ended, since the response reports the state at
// that time.
func (w *Waiter) fleet(ctx context.Context) (Fleet, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	f, err := w.store.Fleet(ctx)
	if err != nil {
		return Fleet{}, fmt.Errorf("wait for the fleet: %w", err)
	}
	return f, nil
}

// check returns which live proxies have reached the target.
func (w *Waiter) check(ctx context.Context, t *target) (Applied, error) {
	f, err := w.fleet(ctx)
	if err != nil {
		return Applied{}, err
	}

	applied := map[string]bool{}
	for i := range f.Proxies {
		if d := &f.Proxies[i]; d.State == Active {
			others, known := applied[d.Name] // other sessions of the proxy
			applied[d.Name] = t.reached(d) && (others || !known)
		}
	}

	var a Applied
	for _, name := range slices.Sorted(maps.Keys(applied)) {
		if applied[name] {
			a.By = append(a.By, name)
		} else {
			a.Pending = append(a.Pending, name)
		}
	}

	return a, nil
}

func (t *target) reached(d *Proxy) bool {
	confirmed := d.AppliedRev >= t.rev || (t.known && !slices.Contains(t.waiting, wire.SessionID(d.Session)))
	return confirmed && d.CatalogRev >= t.catalogRev
}
