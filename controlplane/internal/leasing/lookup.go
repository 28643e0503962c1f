package leasing

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"modelgateway/shared/apikey"
	"modelgateway/shared/wire"
)

// staleLookup is how long a proxy waits for a lookup. Older ones are dropped:
// reading them would delay later ones until their proxies no longer wait either.
const staleLookup = 2 * time.Second

// lookup is a request for the record of a key, with the function that responds.
type lookup struct {
	hash    apikey.Hash
	respond func(wire.LoadKeyResponse)
	since   time.Time
}

func (l *lookup) unavailable() {
	l.respond(wire.LoadKeyResponse{V: wire.Version, Status: wire.Unavailable})
}

// lookups is the queue of lookups.
type lookups struct {
	queue chan *lookup
	// mu guards stopped. Nothing is queued once it is true.
	mu      sync.RWMutex
	stopped bool
}

// add queues a lookup. It returns false if the queue is full or has stopped.
func (q *lookups) add(l *lookup) bool {
	q.mu.RLock()
	defer q.mu.RUnlock()
	if q.stopped {
		return false
	}
	select {
	case q.queue <- l:
		return true
	default:
		return false
	}
}

// take adds queued lookups to a batch, up to a size of limit.
func (q *lookups) take(batch []*lookup, limit int) []*lookup {
	for len(batch) < limit {
		select {
		case l := <-q.queue:
			batch = append(batch, l)
		default:
			return batch
		}
	}
	return batch
}

// stop answers the queued lookups as unavailable. After that add returns false.
func (q *lookups) stop() {
	q.mu.Lock()
	q.stopped = true
	q.mu.Unlock()
	for _, l := range q.take(nil, maxQueue) {
		l.unavailable()
	}
}

// LoadKey queues a lookup. respond is called as Request does, or never if the
// lookup has become stale.
func (s *Service) LoadKey(q *wire.LoadKeyRequest, respond func(wire.LoadKeyResponse)) {
	l := &lookup{hash: q.KeyHash, respond: respond, since: time.Now()}
	if !s.lookups.add(l) {
		s.metrics.refused.Inc()
		l.unavailable()
	}
}

// runLookups reads records in batches until ctx ends. Lookups that arrive during a
// read form the next batch.
func (s *Service) runLookups(ctx context.Context) {
	defer s.lookups.stop()
	for {
		select {
		case <-ctx.Done():
			return
		case l := <-s.lookups.queue:
			s.load(ctx, s.lookups.take([]*lookup{l}, maxBatch))
		}
	}
}

// load reads the records of the lookups that are not stale, and responds.
func (s *Service) load(ctx context.Context, batch []*lookup) {
	var awaited []*lookup
	var hashes []apikey.Hash
	for _, l := range batch {
		if time.Since(l.since) < staleLookup {
			awaited, hashes = append(awaited, l), append(hashes, l.hash)
		}
	}

	s.metrics.lookups(len(awaited), len(batch))
	if len(awaited) == 0 {
		return
	}

	ctx, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	loaded, err := s.store.LoadKeys(ctx, hashes)
	if err != nil {
		s.log.Error("reading key records failed", slog.Any("error", err), slog.Int("size", len(hashes)))
	}

	for _, l := range awaited {
		if reply := loaded[l.hash]; reply != nil {
			l.respond(*reply)
			continue
		}
		l.unavailable()
	}
}
