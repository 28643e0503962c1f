package bus

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"modelgateway/controlplane/internal/catalog"
	"modelgateway/controlplane/internal/leasing"
	"modelgateway/controlplane/internal/outbox"
	"modelgateway/shared/event"
	"modelgateway/shared/subject"
	"modelgateway/shared/wire"
	"modelgateway/shared/wire/checkwire"
)

var (
	_ leasing.Pusher = (*Bus)(nil)
	_ outbox.Bucket  = (*Bus)(nil)
)

// Recall implements leasing.Pusher. If the message is lost, the leasing service
// sends it again while a lease request waits for the units.
func (b *Bus) Recall(session wire.SessionID, r wire.Recall) error {
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("bus: encode recall: %w", err)
	}
	if err := b.nc.Publish(subject.Recall(int64(session)), data); err != nil {
		return fmt.Errorf("bus: publish recall: %w", err)
	}
	return nil
}

func (b *Bus) Push(_ context.Context, c wire.KeyChange, acks func(proxy string, a wire.Ack)) (stop func(), err error) {
	return requestAll(b, subject.KeyChange, c, acks)
}

func (b *Bus) AskReserved(
	_ context.Context,
	q wire.ReservedRequest,
	answers func(proxy string, a wire.ReservedResponse),
) (stop func(), err error) {
	return requestAll(b, subject.Reserved, q, answers)
}

func (b *Bus) AskExplain(
	_ context.Context,
	q wire.ExplainRequest,
	answers func(proxy string, a wire.ExplainResponse),
) (stop func(), err error) {
	return requestAll(b, subject.Explain, q, answers)
}

func (b *Bus) AskCheck(
	_ context.Context,
	q checkwire.Request,
	answers func(proxy string, a checkwire.Response),
) (stop func(), err error) {
	return requestAll(b, subject.Check, q, answers)
}

// requestAll sends a request to every proxy, and calls handle for each response
// and the proxy that it comes from, until stop is called.
func requestAll[R any](b *Bus, name string, request any, handle func(proxy string, response R)) (stop func(), err error) {
	data, err := json.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("bus: encode request to %s: %w", name, err)
	}

	answer := subject.NewAnswer(rand.Text())
	sub, err := b.nc.Subscribe(subject.FromAll(answer), func(m *nats.Msg) {
		decode(b, m, func(r *R) { handle(subject.Sender(m.Subject), *r) })
	})
	if err != nil {
		return nil, fmt.Errorf("bus: subscribe to responses of %s: %w", name, err)
	}

	stop = func() { _ = sub.Unsubscribe() } // fails only on a closed connection
	if err := b.nc.PublishRequest(name, answer, data); err != nil {
		stop()
		return nil, fmt.Errorf("bus: send request to %s: %w", name, err)
	}

	return stop, nil
}

// pushWatermark reports to a session which of its events are settled. If the
// message is lost, the next one contains the same information.
func (b *Bus) pushWatermark(s event.Settled) error {
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("bus: encode watermark: %w", err)
	}
	if err := b.nc.Publish(subject.Settled(s.Session), data); err != nil {
		return fmt.Errorf("bus: publish watermark: %w", err)
	}
	return nil
}

// Position implements outbox.Bucket. It returns the last sequence number of the bucket's stream.
func (b *Bus) Position(ctx context.Context) (uint64, error) {
	stream, err := b.js.Stream(ctx, "KV_"+subject.CatalogBucket)
	if err != nil {
		return 0, fmt.Errorf("bus: read position of the catalog bucket: %w", err)
	}
	return stream.CachedInfo().State.LastSeq, nil
}

// Put implements outbox.Bucket. It publishes to the bucket's stream, because the
// client's bucket operations can check the revision of one key but not that of
// the whole bucket.
func (b *Bus) Put(ctx context.Context, entry catalog.Entry, position uint64) (uint64, error) {
	message := nats.NewMsg("$KV." + subject.CatalogBucket + "." + entry.Subject)
	if message.Data = entry.Payload; entry.Payload == nil {
		message.Header.Set("KV-Operation", "DEL")
	}
	ack, err := b.js.PublishMsg(ctx, message, jetstream.WithExpectLastSequence(position))
	switch {
	case err == nil:
		return ack.Sequence, nil
	case isOvertaken(err):
		return 0, outbox.ErrOvertaken
	default:
		return 0, fmt.Errorf("bus: put catalog entry %s: %w", entry.Subject, err)
	}
}

// isOvertaken reports whether a stream has refused a message because another one
// is the last. A cluster has a code of its own for a message that is on its way.
func isOvertaken(err error) bool {
	refused, ok := errors.AsType[*jetstream.APIError](err)
	return ok &&
		(refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
			refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// Get returns a catalog entry, or nil if there is none.
func (b *Bus) Get(ctx context.Context, key string) ([]byte, error) {
	kv, err := b.js.KeyValue(ctx, subject.CatalogBucket)
	if err != nil {
		return nil, fmt.Errorf("bus: open catalog bucket: %w", err)
	}
	entry, err := kv.Get(ctx, key)
	switch {
	case err == nil:
		return entry.Value(), nil
	case isNotFound(err):
		return nil, nil
	default:
		return nil, fmt.Errorf("bus: get catalog entry %s: %w", key, err)
	}
}

// Keys lists the catalog entries.
func (b *Bus) Keys(ctx context.Context) ([]string, error) {
	kv, err := b.js.KeyValue(ctx, subject.CatalogBucket)
	if err != nil {
		return nil, fmt.Errorf("bus: open catalog bucket: %w", err)
	}

	lister, err := kv.ListKeys(ctx)
	if err != nil {
		return nil, fmt.Errorf("bus: list catalog entries: %w", err)
	}
	defer func() { _ = lister.Stop() }()
	var keys []string
	for key := range lister.Keys() {
		keys = append(keys, key)
	}

	if err := ctx.Err(); err != nil { // the list ended early
		return nil, fmt.Errorf("bus: list catalog entries: %w", err)
	}

	return keys, nil
}

func isNotFound(err error) bool {
	return errors.Is(err, jetstream.ErrKeyNotFound) // also matches a deleted key
}
