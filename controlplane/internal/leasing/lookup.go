package leasing

import (
	"context"
	"log/slog"
	"time"

	"modelgateway/shared/apikey"
	"modelgateway/shared/wire"
)

// staleLookup is how long a proxy waits for a lookup. One that has waited here
// for longer is asked for by nobody any more: reading it would hold up those
// that came later until nobody waited for them either.
const staleLookup = 2 * time.Second

// lookup is a question for a key's record and the place where its answer goes.
type lookup struct {
	hash  apikey.Hash
	done  func(wire.LoadKeyResponse)
	since time.Time
}

// fail says that the answer cannot be told now.
func (l *lookup) fail() { l.done(wire.LoadKeyResponse{V: wire.Version, Status: wire.Unavailable}) }

// LoadKey queues a lookup; done is called as Op calls it, or never when the
// proxy has stopped waiting.
func (s *Service) LoadKey(q *wire.LoadKeyRequest, done func(wire.LoadKeyResponse)) {
	l := &lookup{hash: q.KeyHash, done: done, since: time.Now()}
	if !admit(s, s.lookups, l) {
		s.metrics.refused.Inc()
		l.fail()
	}
}

// loads reads batch after batch of records. They gather as ops do: however many
// keys are new at once, there is one statement for all that wait.
func (s *Service) loads(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case l := <-s.lookups:
			s.load(ctx, gather(s.lookups, []*lookup{l}))
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
		s.log.Error("load keys", slog.Any("error", err), slog.Int("size", len(hashes)))
	}
	for _, l := range wanted {
		if reply := loaded[l.hash]; reply != nil {
			l.done(*reply)
			continue
		}
		l.fail()
	}
}
