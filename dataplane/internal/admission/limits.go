package admission

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"modelgateway/dataplane/internal/auth"
	"modelgateway/shared/lease/holder"
	"modelgateway/shared/limit"
	"modelgateway/shared/wire"
)

// windows has the current windows of limits. It is safe for concurrent use.
type windows struct {
	mu    sync.Mutex
	known limit.Windows
}

func (w *windows) current(l *limit.Limit, nowMS int64) (limit.Span, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.known.Current(l, nowMS)
}

// move records the right window of one of the limits, and reports whether that could be done.
func (w *windows) move(limits []limit.Limit, pool wire.PoolID, nowMS int64) bool {
	id, _, ok := limit.OfPool(int64(pool))
	for i := range limits {
		if ok && limits[i].ID == id {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.known.Move(&limits[i], int64(pool), nowMS)
			return true
		}
	}
	return false
}

// learn records when the windows of leases end.
func (w *windows) learn(leases []wire.LeaseState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range leases {
		w.known.Learn(int64(leases[i].Pool), leases[i].EndMS)
	}
}

// learnEnds tells a queue until when it may keep idle units of the windows of which it gets some.
func (q *accountQueue) learnEnds(queue *holder.Queue, leases []wire.LeaseState) {
	now, elapsed := time.Now().UnixMilli(), q.a.elapsed()
	for i := range leases {
		if _, _, ok := limit.OfPool(int64(leases[i].Pool)); !ok {
			continue
		}
		at := time.Duration(0)
		if until := leases[i].IdleUntil; until != 0 {
			at = max(elapsed+time.Duration(until-now)*time.Millisecond, 1)
		}
		queue.UseUntil(leases[i].Pool, at)
	}
}

// acquireInWindows is tryAcquire, again for each limit in another window of which the request counts, as the control plane says.
func (a *Admission) acquireInWindows(ctx context.Context, r Request) (*Reservation, error) {
	for moves := 0; ; moves++ {
		res, err := a.tryAcquire(ctx, r)
		refused, ok := errors.AsType[*RefusedError](err)
		switch {
		case !ok:
			return res, err
		case refused.Reason != wire.WrongWindow:
			a.describe(refused, r.Key)
			a.metrics.refusals.WithLabelValues(string(refused.Reason), string(refused.Scope())).Inc()
			return nil, refused
		case moves >= limit.MaxMoves(len(r.Key.Limits)) || !a.windows.move(r.Key.Limits, refused.Pool, time.Now().UnixMilli()):
			return nil, fmt.Errorf("%w: no window of a limit is current", ErrUnavailable)
		}
	}
}

// appendWindows appends the needs of the windows of the limits that apply to the request, and returns the pools of these.
func (a *Admission) appendWindows(r *Request, needs []wire.Need) (all []wire.Need, pools []int64, err error) {
	if len(r.Key.Limits) == 0 {
		return needs, nil, nil
	}

	model := ""
	if r.Use != nil {
		model = r.Use.ModelID()
	}

	now, amount := time.Now().UnixMilli(), max(int64(r.ExpectedCost), 1)
	for i := range r.Key.Limits {
		l := &r.Key.Limits[i]
		if !l.AppliesTo(model) {
			continue
		}
		span, err := a.windows.current(l, now)
		if err != nil {
			return nil, nil, err
		}
		pool := limit.Pool(l.ID, span.Number)
		needs = append(needs, wire.Need{Pool: wire.PoolID(pool), Kind: wire.Limit, Amount: amount})
		pools = append(pools, pool)
	}

	return needs, pools, nil
}

// describe adds to a refusal which limit is short and when its window ends.
func (a *Admission) describe(r *RefusedError, key *auth.Key) {
	r.KeyID, r.OfKey = key.KeyID, r.Pool == key.KeySlotsPool && r.Pool != 0
	id, number, ok := limit.OfPool(int64(r.Pool))
	for i := range key.Limits {
		if l := &key.Limits[i]; ok && l.ID == id {
			r.Limit = l
			if span, err := a.windows.current(l, time.Now().UnixMilli()); err == nil && span.Number == number && span.EndMS != 0 {
				r.ResetsAt = time.UnixMilli(span.EndMS)
			}
		}
	}
}
