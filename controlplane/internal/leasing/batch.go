package leasing

import (
	"context"
	"log/slog"
	"time"

	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/wire"
)

const (
	// maxBatch bounds the messages of one transaction.
	maxBatch = 256
	// maxQueue bounds the messages that wait for a transaction. Others get the response unavailable.
	maxQueue = 8192
	// batchTimeout bounds one transaction; stopTimeout bounds the remaining time of the running one when the service
	// stops. After that its messages get the response unavailable. If it was committed nevertheless, the repeated
	// message gets the stored response.
	batchTimeout = 5 * time.Second
	stopTimeout  = time.Second
)

// Request queues a lease request. respond is called once, without a lock held:
// from another goroutine, or at once when the queue is full or the service has
// stopped.
//
// A message that exceeds the bounds is refused at once, also by Return.
func (s *Service) Request(request *wire.LeaseRequest, respond func(wire.LeaseResponse)) {
	if allocator.Exceeds(request.Reports, request.Needs) {
		s.tooLarge(request.Session, len(request.Reports), len(request.Needs))
		respond(allocator.TooLarge(request))
		return
	}
	if !s.enqueue(func() bool { return s.batcher.AddRequest(request, respond) }) {
		respond(allocator.Unavailable(request))
	}
}

// Return queues a return; respond is called as Request calls it.
func (s *Service) Return(ret *wire.Return, respond func(wire.ReturnResponse)) {
	if allocator.Exceeds(ret.Reports, nil) {
		s.tooLarge(ret.Session, len(ret.Reports), 0)
		respond(wire.ReturnResponse{V: wire.Version, Status: wire.TooLarge})
		return
	}
	if !s.enqueue(func() bool { return s.batcher.AddReturn(ret, respond) }) {
		respond(wire.ReturnResponse{V: wire.Version, Status: wire.Unavailable})
	}
}

// tooLarge records that a message was refused. Only a broken proxy, or one that is not ours, sends such messages.
func (s *Service) tooLarge(session wire.SessionID, reports, waiters int) {
	s.metrics.tooLarge.Inc()
	s.log.Warn(
		"lease message exceeds the bounds and was refused",
		slog.Int64("session", int64(session)),
		slog.Int("reports", reports),
		slog.Int("waiting_requests", waiters),
	)
}

// enqueue adds a message to the batcher and wakes the goroutine that runs
// batches.
func (s *Service) enqueue(add func() bool) bool {
	s.batches.Lock()
	added := add()
	s.batches.Unlock()
	if !added {
		s.metrics.refused.Inc()
		return false
	}
	select {
	case s.arrived <- struct{}{}:
	default: // it is awake
	}
	return true
}

// elapsed returns the time of the batcher's clock.
func (s *Service) elapsed() time.Duration { return time.Since(s.started) }

// runBatches runs transactions until ctx ends, and then answers the messages that
// are still queued.
func (s *Service) runBatches(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()

	for ctx.Err() == nil {
		s.batches.Lock()
		tx, wake := s.batcher.Next(s.elapsed())
		s.batches.Unlock()
		if tx != nil {
			s.runBatch(ctx, tx)
			continue
		}
		timer.Reset(wake - s.elapsed())
		select {
		case <-ctx.Done():
		case <-s.arrived:
		case <-timer.C:
		}
	}

	s.batches.Lock()
	responses := s.batcher.Stop()
	s.batches.Unlock()
	call(responses)
}

// call sends responses.
func call(responses []func()) {
	for _, respond := range responses {
		respond()
	}
}

// runBatch decides a batch in one transaction, and answers after the commit.
func (s *Service) runBatch(ctx context.Context, tx *allocator.Transaction) {
	start := time.Now()
	// A stop does not interrupt a transaction, unless it takes long.
	begun, cancel := context.WithTimeout(context.WithoutCancel(ctx), batchTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(stopTimeout, cancel) })()

	err := s.store.Batch(begun, tx.Requests(), tx.Returns(), func(b *allocator.Batch) {
		tx.Decide(b)
	})

	s.metrics.batch(tx.Len(), time.Since(start))
	s.batches.Lock()
	var responses []func()
	var recalls map[wire.SessionID][]wire.Recall
	if err == nil {
		responses, recalls = s.batcher.Commit(tx)
	} else {
		responses = s.batcher.Fail(tx)
	}

	s.batches.Unlock()
	if err != nil {
		s.log.Error("transaction of lease requests failed", slog.Any("error", err), slog.Int("messages", tx.Len()))
	}

	s.recall(recalls)
	call(responses)
}

// recall sends recalls.
func (s *Service) recall(recalls map[wire.SessionID][]wire.Recall) {
	for session, list := range recalls {
		for _, r := range list {
			s.metrics.recalls.Inc()
			if err := s.pusher.Recall(session, r); err != nil {
				s.log.Warn("sending a recall failed", slog.Any("error", err), slog.Int64("session", int64(session)))
			}
		}
	}
}
