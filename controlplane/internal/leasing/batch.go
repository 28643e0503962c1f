package leasing

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/lease/rollback"
	"modelgateway/shared/wire"
)

const (
	// maxBatch bounds the messages of one transaction.
	maxBatch = 256
	// maxQueue bounds the messages that wait for one; beyond it they are told to try elsewhere.
	maxQueue = 8192
	// recallWait is how long an op waits for idle units to be recalled before its proxy is told to ask again. Another
	// replica may get the answers: so it is looked at meanwhile, first after recallLook, then after twice as long each time.
	recallWait = 250 * time.Millisecond
	recallLook = 10 * time.Millisecond
	// batchTimeout bounds one transaction, stopTimeout what is left of it when the service stops: whoever asked is told
	// to ask elsewhere, and a decision that was committed all the same is answered by its number.
	batchTimeout = 5 * time.Second
	stopTimeout  = time.Second
)

// work is one message and the places where its answer goes: those of all
// repetitions of an op that came before it was answered.
type work struct {
	op      *wire.LeaseRequest
	ret     *wire.Return
	opDone  []func(wire.LeaseResponse) // guarded by the Service's repetitions
	retDone func(wire.ReturnResponse)
	// stay is what is noted of an op; next becomes that when the transaction is committed.
	stay, next allocator.PendingRequest
	// until is when a lingering op is decided in any case; zero until it has lingered.
	until time.Time
	// recalling tells that it lingers for a recall; its time is counted anew when that is over.
	recalling bool
	// look is when a lingering op is looked at again at the latest, and pause the time until then.
	look  time.Time
	pause time.Duration
	// arrived orders the lingering ops.
	arrived time.Time
}

// wait has the op linger, for a recall or for returns.
func (w *work) wait(recalling bool, now time.Time, linger time.Duration) {
	switch {
	case w.until.IsZero() || w.recalling != recalling:
		w.recalling, w.until, w.pause = recalling, now.Add(linger), linger
		if recalling {
			w.until, w.pause = now.Add(recallWait), recallLook
		}
	case !now.Before(w.look):
		w.pause *= 2
	}
	if w.look = now.Add(w.pause); w.look.After(w.until) {
		w.look = w.until
	}
}

// fail says that the answer cannot be told now.
func (s *Service) fail(w *work) {
	if w.op != nil {
		s.answerOp(w, wire.LeaseResponse{V: wire.Version, Number: w.op.Number, Status: wire.Unavailable})
		return
	}
	w.retDone(wire.ReturnResponse{V: wire.Version, Status: wire.Unavailable})
}

// repetitions are the ops that wait for their answer. One that comes again
// meanwhile joins itself: while the control plane is slow, most of what comes
// has come before, and to decide it anew would keep it slow.
type repetitions struct {
	mu      sync.Mutex
	waiting map[opID]*work
}

type opID struct {
	allocator.RequestKey
	no int64
}

func idOf(op *wire.LeaseRequest) opID {
	return opID{allocator.RequestKey{Session: op.Session, Account: op.Account}, op.Number}
}

// Op queues an op; done is called once, and never with a lock held: from
// another goroutine, or at once when nothing more is taken in.
func (s *Service) Op(op *wire.LeaseRequest, done func(wire.LeaseResponse)) {
	s.repetitions.mu.Lock()
	w := s.repetitions.waiting[idOf(op)]
	again := w != nil
	if !again {
		w = &work{op: op, arrived: time.Now()}
		s.repetitions.waiting[idOf(op)] = w
	}
	w.opDone = append(w.opDone, done)
	s.repetitions.mu.Unlock()
	if !again {
		s.enqueue(w)
	}
}

func (s *Service) answerOp(w *work, reply wire.LeaseResponse) {
	s.repetitions.mu.Lock()
	delete(s.repetitions.waiting, idOf(w.op))
	asked := w.opDone
	s.repetitions.mu.Unlock()
	for _, done := range asked {
		done(reply)
	}
}

// Return queues a return; done is called as Op calls it.
func (s *Service) Return(ret *wire.Return, done func(wire.ReturnResponse)) {
	s.enqueue(&work{ret: ret, retDone: done})
}

func (s *Service) enqueue(w *work) {
	if !admit(s, s.queue, w) {
		s.metrics.refused.Inc()
		s.fail(w)
	}
}

// admit queues the work. It holds off drain, so that nothing is queued that
// nobody would take out again.
func admit[W any](s *Service, queue chan<- W, w W) bool {
	s.admission.RLock()
	defer s.admission.RUnlock()
	if s.stopped {
		return false
	}
	select {
	case queue <- w:
		return true
	default:
		return false
	}
}

// batches runs transaction after transaction. While one runs, the next batch
// gathers: under load the batches grow by themselves, and a lone op waits for
// nothing.
func (s *Service) batches(ctx context.Context) {
	var lingering []*work
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		timer.Reset(nextDeadline(lingering))
		var batch []*work
		select {
		case <-ctx.Done():
			continue
		case w := <-s.queue:
			batch = gather(s.queue, append(batch, w))
		case <-timer.C:
		}
		batch, lingering = wake(batch, lingering, time.Now())
		if len(batch) > 0 {
			lingering = append(lingering, s.run(ctx, batch)...)
		}
	}
	s.drain(lingering)
}

// gather adds to a batch what waits already.
func gather[W any](queue <-chan W, batch []W) []W {
	for len(batch) < maxBatch {
		select {
		case w := <-queue:
			batch = append(batch, w)
		default:
			return batch
		}
	}
	return batch
}

// drain turns away what comes from now on, and answers everything that is
// still here.
func (s *Service) drain(lingering []*work) {
	s.admission.Lock()
	s.stopped = true
	s.admission.Unlock()
	for _, w := range lingering {
		s.fail(w)
	}
	for {
		select {
		case w := <-s.queue:
			s.fail(w)
		case l := <-s.lookups:
			l.fail()
		default:
			return
		}
	}
}

func nextDeadline(lingering []*work) time.Duration {
	next := time.Hour
	for _, w := range lingering {
		next = min(next, time.Until(w.look))
	}
	return max(next, 0)
}

// wake moves those lingering ops into the batch whose time has come, or whose
// account gives something back in this batch. They came first, so they are
// decided first, in the order in which they came.
func wake(batch, lingering []*work, now time.Time) (ready, rest []*work) {
	returning := map[string]bool{}
	for _, w := range batch {
		if w.ret != nil {
			returning[w.ret.Account] = true
		} else if len(w.op.Reports) > 0 {
			returning[w.op.Account] = true
		}
	}
	slices.SortStableFunc(lingering, func(a, b *work) int { return a.arrived.Compare(b.arrived) })
	for _, w := range lingering {
		if returning[w.op.Account] || !now.Before(w.look) {
			ready = append(ready, w)
			continue
		}
		rest = append(rest, w)
	}
	return append(ready, batch...), rest
}

// run decides a batch in one transaction, answers what is decided after the
// commit, and returns the ops that linger.
func (s *Service) run(ctx context.Context, batch []*work) []*work {
	var ops []*wire.LeaseRequest
	var returns []*wire.Return
	for _, w := range batch {
		if w.op != nil {
			ops = append(ops, w.op)
		} else {
			returns = append(returns, w.ret)
		}
	}
	start := time.Now()
	var replies []*wire.LeaseResponse
	// What is begun is finished: a stop does not cut a commit short, unless it takes long.
	begun, cancel := context.WithTimeout(context.WithoutCancel(ctx), batchTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(stopTimeout, cancel) })()
	var returned []wire.Status
	var recalls map[wire.SessionID][]wire.Recall
	err := s.store.Batch(begun, ops, returns, func(d *allocator.Batch) {
		replies, returned = s.decide(d, batch, start)
		recalls = d.Allocator.ToRecall()
	})
	s.metrics.batch(len(batch), time.Since(start))
	if err != nil {
		s.log.Error("lease batch", slog.Any("error", err), slog.Int("size", len(batch)))
		for _, w := range batch {
			s.fail(w)
		}
		return nil
	}
	s.recall(recalls)
	return s.answer(batch, replies, returned)
}

// recall asks for idle units. A recall that is lost is sent again with the
// next look at the op that waits for it.
func (s *Service) recall(recalls map[wire.SessionID][]wire.Recall) {
	for session, list := range recalls {
		for _, r := range list {
			s.metrics.recalls.Inc()
			if err := s.pusher.Recall(session, r); err != nil {
				s.log.Warn("recall", slog.Any("error", err), slog.Int64("session", int64(session)))
			}
		}
	}
}

// decide applies the whole batch to the docket: what is given back first, then
// the ops in their order of arrival. A nil reply means that the op lingers.
func (s *Service) decide(d *allocator.Batch, batch []*work, now time.Time) (replies []*wire.LeaseResponse, returned []wire.Status) {
	d.Recovering = rollback.InRecoveryWait(d.SinceLoss, s.cfg.Valid, s.cfg.margin())
	replies, returned = make([]*wire.LeaseResponse, len(batch)), make([]wire.Status, len(batch))
	for i, w := range batch {
		if w.ret != nil {
			returned[i] = d.ApplyReturn(w.ret)
		}
	}
	for i, w := range batch {
		if w.op != nil {
			replies[i] = s.decideOp(d, w, now)
		}
	}
	return replies, returned
}

func (s *Service) decideOp(d *allocator.Batch, w *work, now time.Time) *wire.LeaseResponse {
	w.next = w.stay.Clone()
	w.next.MayWait, w.next.ResendRecall = w.until.IsZero() || now.Before(w.until), !w.look.IsZero() && !now.Before(w.look)
	reply, recalling := d.Decide(w.op, &w.next, func() {
		if s.cfg.Calm >= 0 {
			s.calm.Apply(d.Allocator, d.LiveSessions, w.op, now.Sub(s.started))
		}
	})
	if reply == nil {
		w.wait(recalling, now, s.cfg.Linger)
	}
	return reply
}

func (s *Service) answer(batch []*work, replies []*wire.LeaseResponse, returned []wire.Status) (lingering []*work) {
	for i, w := range batch {
		switch {
		case w.ret != nil:
			w.retDone(wire.ReturnResponse{V: wire.Version, Status: returned[i]})
		case replies[i] != nil:
			s.answerOp(w, *replies[i])
		default:
			w.stay = w.next
			lingering = append(lingering, w)
		}
	}
	return lingering
}
