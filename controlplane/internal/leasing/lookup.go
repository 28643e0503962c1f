package leasing

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"modelgateway/shared/apikey"
	"modelgateway/shared/wire"
)

// staleLookup is how long a proxy waits for a lookup. Older ones are dropped: no
// one waits for them, and reading them would hold up those that came later until
// no one waited for those either.
const staleLookup = 2 * time.Second

// lookup is a request for the record of a key, and where its response goes.
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
	// mu guards stopped: nothing is queued after the queue was emptied for the last time.
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

// take adds the lookups that wait to a batch.
func (q *lookups) take(batch []*lookup, most int) []*lookup {
	for len(batch) < most {
		select {
		case l := <-q.queue:
			batch = append(batch, l)
		default:
			return batch
		}
	}
	return batch
}

// stop answers the lookups that wait, and takes no more.
func (q *lookups) stop() {
	q.mu.Lock()
	q.stopped = true
	q.mu.Unlock()
	for _, l := range q.take(nil, maxQueue) {
		l.unavailable()
	}
}

// LoadKey queues a lookup; respond is called as Request calls it, or never when
// the proxy has stopped waiting.
func (s *Service) LoadKey(q *wire.LoadKeyRequest, respond func(wire.LoadKeyResponse)) {
	l := &lookup{hash: q.KeyHash, respond: respond, since: time.Now()}
	if !s.lookups.add(l) {
		s.metrics.refused.Inc()
		l.unavailable()
	}
}

// runLookups reads batch after batch of records. They grow as batches of lease
// requests do: however many keys are new at once, there is one statement for all
// that wait.
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

func (s *Service) load(ctx context.Context, batch []*lookup) {
	var wanted []*lookup
	var hashes []apikey.Hash
	for _, l := range batch {
		if time.Since(l.since) < staleLookup {
			wanted, hashes = append(wanted, l), append(hashes, l.hash)
		}
	}
	s.metrics.lookups(len(wanted), len(batch))
	if len(wanted) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	loaded, err := s.store.LoadKeys(ctx, hashes)
	if err != nil {
		s.log.Error("key records not read", slog.Any("error", err), slog.Int("size", len(hashes)))
	}
	for _, l := range wanted {
		if reply := loaded[l.hash]; reply != nil {
			l.respond(*reply)
			continue
		}
		l.unavailable()
	}
}
