package route

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// limitKey names what a provider's rate limit is assumed to apply to.
type limitKey struct{ route, credential string }

// limits has the routes whose provider limits the rate of calls now.
type limits struct {
	// count is the number of limits. While it is zero, calls take no lock.
	count atomic.Int32

	mu sync.Mutex
	by map[limitKey]*limit
	// refused counts the requests that had no turn in time, by route id.
	refused map[string]int
}

// limit is one rate limit in force, with the timer of its turns.
type limit struct {
	turns *turns
	timer *time.Timer
}

// Turn is the permission to call a route.
type Turn struct {
	picker *Picker
	key    limitKey
	// counted means that the route was limited already when the turn was taken.
	counted bool
}

// AwaitTurn waits for an account's turn to call a route. It returns at once while
// the provider does not limit the rate of calls. Otherwise accounts take turns, and
// ok is false if the request would have to wait for longer than two seconds or,
// unless wait is set, at all.
func (p *Picker) AwaitTurn(ctx context.Context, c Choice, account string, wait bool) (turn Turn, ok bool) {
	turn = Turn{picker: p, key: limitKey{c.ID, c.Credential.ID}}
	if p.limits.count.Load() == 0 {
		return turn, true
	}

	l := &p.limits
	l.mu.Lock()
	known := l.current(turn.key, p.now())
	if known == nil {
		l.mu.Unlock()
		return turn, true
	}

	turn.counted = true
	granted := known.turns.take(p.now())
	var w *waitingTurn
	if !granted && wait {
		if w = known.turns.wait(account); w != nil {
			p.grant(turn.key)
		}
	}

	if !granted && w == nil {
		l.refused[c.ID]++
	}

	l.mu.Unlock()
	if w == nil {
		return turn, granted
	}

	ctx, cancel := context.WithTimeout(ctx, maxTurnWait)
	defer cancel()

	select {
	case <-w.granted:
		return turn, true
	case <-ctx.Done():
	}

	l.mu.Lock()
	defer l.mu.Unlock()

	if known.turns.cancel(w) {
		l.refused[c.ID]++
		return turn, false
	}

	return turn, true
}

// current returns the limit that is in force, or nil. A limit that is over is
// removed. The caller holds the lock.
func (l *limits) current(key limitKey, now time.Time) *limit {
	known := l.by[key]
	if known == nil {
		return nil
	}
	if known.turns.advance(now); !known.turns.over() {
		return known
	}
	if known.timer != nil {
		known.timer.Stop()
	}
	delete(l.by, key)
	l.count.Add(-1)
	return nil
}

// grant gives waiting requests their turns and sets the timer. The caller holds the
// lock.
func (p *Picker) grant(key limitKey) {
	known := p.limits.by[key]
	if known == nil {
		return
	}

	wake := known.turns.grant(p.now())
	switch {
	case wake.IsZero():
	case known.timer == nil:
		known.timer = time.AfterFunc(wake.Sub(p.now()), func() {
			p.limits.mu.Lock()
			defer p.limits.mu.Unlock()
			p.grant(key)
		})
	default:
		known.timer.Reset(wake.Sub(p.now()))
	}
}

// Refused records that the provider has refused the call because of a rate limit.
func (t *Turn) Refused() {
	l := &t.picker.limits
	l.mu.Lock()
	defer l.mu.Unlock()
	now := t.picker.now()
	known := l.current(t.key, now)
	switch {
	case known == nil:
		for key := range l.by { // some may be over without a call since
			l.current(key, now)
		}
		l.by[t.key] = &limit{turns: newTurns(now)}
		l.count.Add(1)
	case t.counted: // others began before the limit, so they are not among the counted calls
		known.turns.refuse(now)
	}
}
