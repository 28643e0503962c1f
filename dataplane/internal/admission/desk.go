package admission

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"modelgateway/dataplane/internal/session"
	"modelgateway/shared/lease"
)

const (
	// opRetry is the pause before an unanswered op or return is sent again.
	opRetry = 60 * time.Millisecond
	// returnRetry is the pause after a return that could not be delivered; its units are held meanwhile.
	returnRetry = 250 * time.Millisecond
)

// desk is where the requests of one account in one session wait: a
// lease.Holder with a lock, and at most one goroutine that talks to the
// control plane for it.
type desk struct {
	a *Admission
	s *session.Session

	mu      sync.Mutex
	holder  *lease.Holder
	waiters map[*lease.Ticket]chan struct{} // closed at the decision
	busy    bool                            // the goroutine runs
	closed  bool                            // the session takes nothing more
}

func (a *Admission) desk(s *session.Session, account string) (*desk, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.session != s {
		return nil, fmt.Errorf("%w: the session changed", ErrUnavailable)
	}
	d := a.desks[account]
	if d == nil {
		d = &desk{a: a, s: s, holder: lease.NewHolder(s.ID, s.Boot, account), waiters: map[*lease.Ticket]chan struct{}{}}
		a.desks[account] = d
	}
	return d, nil
}

// acquire waits for a decision on the needs.
func (d *desk) acquire(ctx context.Context, needs []lease.Need) (*lease.Ticket, error) {
	d.mu.Lock()
	t := d.holder.Ask(needs)
	if t.Granted() {
		d.mu.Unlock()
		d.a.metrics.local.Inc()
		return t, nil
	}
	decided := make(chan struct{})
	d.waiters[t] = decided
	d.talk()
	d.mu.Unlock()
	d.a.metrics.synchronous.Inc()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-decided:
		return d.decision(t)
	case <-timer.C:
	case <-ctx.Done():
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.waiters, t)
	if d.holder.Cancel(t) {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
		}
		return nil, fmt.Errorf("%w: no decision in %s", ErrUnavailable, patience)
	}
	return t, nil // granted in the last moment
}

func (d *desk) decision(t *lease.Ticket) (*lease.Ticket, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case t.Granted():
		return t, nil
	case t.Refused():
		return nil, &RefusedError{t.Decision()}
	default:
		return nil, fmt.Errorf("%w: the session ended", ErrUnavailable)
	}
}

// finish ends a granted request.
func (d *desk) finish(t *lease.Ticket, cost int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.holder.Finish(t, cost)
	d.talk()
}

// lose sends away everyone who waits.
func (d *desk) lose() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wake(d.holder.Lose())
}

func (d *desk) wake(tickets []*lease.Ticket) {
	for _, t := range tickets {
		if decided := d.waiters[t]; decided != nil {
			delete(d.waiters, t)
			close(decided)
		}
	}
}

// talk starts the goroutine if there is something to send. The lock is held.
func (d *desk) talk() {
	if d.busy || d.closed || d.a.ctx.Err() != nil {
		return
	}
	op, ret := d.holder.NextOp(), (*lease.Return)(nil)
	if op == nil {
		ret = d.holder.NextReturn()
	}
	if op == nil && ret == nil {
		return
	}
	d.busy = true
	d.a.tasks.Go(func() { d.converse(op, ret) })
}

// converse sends message after message until there is nothing to say.
func (d *desk) converse(op *lease.Op, ret *lease.Return) {
	for op != nil || ret != nil {
		if op != nil {
			d.sendOp(op)
		} else {
			d.sendReturn(ret)
		}
		d.mu.Lock()
		op, ret = d.holder.NextOp(), nil
		if op == nil {
			ret = d.holder.NextReturn()
		}
		if d.closed || d.a.ctx.Err() != nil {
			op, ret = nil, nil
		}
		d.busy = op != nil || ret != nil
		d.mu.Unlock()
	}
}

// sendOp repeats an op until it is answered. While it is not, the requests
// that wait for it run into their patience one by one.
func (d *desk) sendOp(op *lease.Op) {
	for d.a.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(d.a.ctx, opRetry+rand.N(opRetry/2))
		reply, err := d.a.bus.Op(ctx, op)
		if err == nil && (reply.Status == lease.Done || reply.Status == lease.Fenced) {
			cancel()
			d.mu.Lock()
			decided := d.holder.Answer(reply)
			d.wake(decided)
			answered := reply.Status == lease.Fenced || reply.No == op.No
			d.mu.Unlock()
			if answered {
				return
			}
			continue
		}
		<-ctx.Done() // the rest of the pause
		cancel()
		if !d.s.Valid() && d.abandoned() {
			return
		}
	}
}

// abandoned ends the wait for an op of a session that is over.
func (d *desk) abandoned() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wake(d.holder.Lose())
	return true
}

// sendReturn repeats a return until it has arrived.
func (d *desk) sendReturn(ret *lease.Return) {
	for d.a.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(d.a.ctx, returnRetry)
		reply, err := d.a.bus.Return(ctx, ret)
		if err == nil && (reply.Status == lease.Done || reply.Status == lease.Fenced) {
			cancel()
			d.mu.Lock()
			d.holder.Returned()
			d.closed = reply.Status == lease.Fenced // nothing of it is held any more
			d.mu.Unlock()
			return
		}
		if err != nil {
			d.a.log.Debug("return of units", slog.Any("error", err))
		}
		<-ctx.Done()
		cancel()
	}
}

// OnRecall takes in a recall of the current session.
func (a *Admission) OnRecall(r lease.Recall) {
	a.mu.Lock()
	d := a.desks[r.Account]
	a.mu.Unlock()
	if d == nil {
		return
	}
	a.metrics.recalls.Inc()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.holder.Recall(r.Pool, r.Gen)
	d.talk()
}
