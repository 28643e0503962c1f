package admission

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"modelgateway/dataplane/internal/session"
	"modelgateway/shared/lease/holder"
	"modelgateway/shared/wire"
)

const (
	// opRetry is how long an op's answer is waited for, at least, before it is sent again, returnRetry the same for a
	// return, whose units are held meanwhile; each time by half longer, up to maxRetry.
	opRetry     = 60 * time.Millisecond
	returnRetry = 250 * time.Millisecond
	maxRetry    = time.Second
	// heard is how long the reply to one repetition is still heard.
	heard = 10 * time.Second
)

// desk is where the requests of one account in one session wait: a
// lease.Holder with a lock, and at most one goroutine each that asks and gives
// back for it.
type desk struct {
	a *Admission
	s *session.Session

	mu      sync.Mutex
	holder  *holder.Holder
	waiters map[*holder.Waiter]chan struct{} // closed at the decision
	lost    bool                             // the session is over: no op is answered any more
	closed  bool                             // nor is any return
	// asking and returning tell which goroutines run; used is when the last request came.
	asking, returning bool
	used              time.Time
}

func (a *Admission) desk(s *session.Session, account string) (*desk, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.session != s {
		return nil, fmt.Errorf("%w: the session changed", ErrUnavailable)
	}
	d := a.desks[account]
	if d == nil {
		d = &desk{a: a, s: s, holder: holder.NewHolder(s.ID, s.Boot, account), waiters: map[*holder.Waiter]chan struct{}{}}
		a.desks[account] = d
	}
	return d, nil
}

// acquire waits for a decision on the needs.
func (d *desk) acquire(ctx context.Context, needs []wire.Need) (*holder.Waiter, error) {
	d.mu.Lock()
	if d.lost || d.closed {
		d.mu.Unlock()
		return nil, fmt.Errorf("%w: the session ended", ErrUnavailable)
	}
	d.used = time.Now()
	t := d.holder.Reserve(needs)
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
	gone, admitted := d.holder.Cancel(t)
	d.wake(admitted)
	switch {
	case !gone: // granted in the last moment
		return t, nil
	case t.Refused(): // the same
		return nil, &RefusedError{t.Decision()}
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
	default:
		return nil, fmt.Errorf("%w: no decision in %s", ErrUnavailable, patience)
	}
}

func (d *desk) decision(t *holder.Waiter) (*holder.Waiter, error) {
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
func (d *desk) finish(t *holder.Waiter, cost int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.holder.Release(t, cost)
	d.talk()
}

// lose sends away everyone who waits, and lets nobody wait any more.
func (d *desk) lose() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lost = true
	d.wake(d.holder.AbortWaiters())
}

func (d *desk) wake(tickets []*holder.Waiter) {
	for _, t := range tickets {
		if decided := d.waiters[t]; decided != nil {
			delete(d.waiters, t)
			close(decided)
		}
	}
}

// talk starts what goroutines there is something to send for: ops and returns
// go side by side, because an op may be waiting for a return. The lock is held.
func (d *desk) talk() {
	if d.closed || d.a.ctx.Err() != nil {
		return
	}
	if !d.asking {
		if op := d.holder.NextRequest(); op != nil {
			d.asking = true
			d.a.tasks.run(func() { d.ask(op) })
		}
	}
	if !d.returning {
		if ret := d.holder.NextReturn(); ret != nil {
			d.returning = true
			d.a.tasks.run(func() { d.giveBack(ret) })
		}
	}
}

// ask sends op after op until no one waits.
func (d *desk) ask(op *wire.LeaseRequest) {
	for op != nil {
		d.sendOp(op)
		d.mu.Lock()
		if op = nil; !d.closed && d.a.ctx.Err() == nil {
			op = d.holder.NextRequest()
		}
		d.asking = op != nil
		d.talk()
		d.mu.Unlock()
	}
}

// giveBack sends return after return until there is nothing to give.
func (d *desk) giveBack(ret *wire.Return) {
	for ret != nil {
		d.sendReturn(ret)
		d.mu.Lock()
		if ret = nil; !d.closed && d.a.ctx.Err() == nil {
			ret = d.holder.NextReturn()
		}
		d.returning = ret != nil
		d.mu.Unlock()
	}
}

// rest gives back what is idle if no request has come since a moment.
func (d *desk) rest(since time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.used.Before(since) {
		d.holder.ReturnIdle()
		d.talk()
	}
}

// sendOp repeats an op until it is answered or the session is over. While it
// is not answered, the requests that wait for it run into their patience one
// by one; it is repeated all the same, for it may have been granted.
func (d *desk) sendOp(op *wire.LeaseRequest) {
	d.repeat(opRetry, d.isLost, func(ctx context.Context) bool {
		reply, err := d.a.bus.Op(ctx, op)
		return err == nil && d.answer(op, reply)
	})
}

// repeat sends a message until it is answered or in vain. The reply to any of
// its repetitions counts. Else a control plane that takes longer than the pause
// between them would be heard never, and what they ask of it would keep it
// slow.
func (d *desk) repeat(pause time.Duration, inVain func() bool, send func(ctx context.Context) (answered bool)) {
	ctx, cancel := context.WithCancel(d.a.ctx)
	var attempts sync.WaitGroup
	defer attempts.Wait()
	defer cancel()
	answered := make(chan struct{})
	var once sync.Once
	for pause = d.a.pace.pause(pause); ctx.Err() == nil && !inVain(); pause = min(pause*3/2, maxRetry) {
		attempts.Go(func() {
			attempt, end := context.WithTimeout(ctx, heard)
			defer end()
			if began := time.Now(); send(attempt) {
				d.a.pace.answered(time.Since(began))
				once.Do(func() { close(answered) })
			}
		})
		timer := time.NewTimer(pause + rand.N(opRetry/2))
		select {
		case <-answered:
			timer.Stop()
			return
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (d *desk) isLost() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lost
}

// answer hands on the answer to an op. It returns false for any other message.
func (d *desk) answer(op *wire.LeaseRequest, reply *wire.LeaseResponse) bool {
	done := reply.Status == wire.Done && reply.Number == op.Number && len(reply.Decisions) == len(op.Needs)
	if !done && reply.Status != wire.Fenced {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wake(d.holder.HandleResponse(reply))
	return true
}

// sendReturn repeats a return until it has arrived.
func (d *desk) sendReturn(ret *wire.Return) {
	never := func() bool { return false }
	d.repeat(returnRetry, never, func(ctx context.Context) bool {
		reply, err := d.a.bus.Return(ctx, ret)
		if err != nil {
			d.a.log.Debug("return of units", slog.Any("error", err))
		}
		return err == nil && d.arrived(reply)
	})
}

// arrived takes note that a return has arrived. It returns false for a reply
// that does not say so.
func (d *desk) arrived(reply *wire.ReturnResponse) bool {
	if reply.Status != wire.Done && reply.Status != wire.Fenced {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.holder.ReturnDelivered()
	d.closed = reply.Status == wire.Fenced // nothing of it is held any more
	return true
}

// OnRecall takes in a recall of the current session.
func (a *Admission) OnRecall(r wire.Recall) {
	a.mu.Lock()
	d := a.desks[r.Account]
	a.mu.Unlock()
	if d == nil {
		return
	}
	a.metrics.recalls.Inc()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.holder.HandleRecall(r.Pool, r.Generation)
	d.talk()
}

// restate tells everything again.
func (d *desk) restate() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.holder.Resync()
	d.talk()
}

// distrust gives back what is idle, and keeps nothing idle until told again.
func (d *desk) distrust() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.holder.DisableEscrow()
	d.talk()
}
