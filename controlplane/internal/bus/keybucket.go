package bus

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"modelgateway/controlplane/internal/keybucket"
	"modelgateway/shared/subject"
	"modelgateway/shared/wire"
)

var _ keybucket.Bucket = (*Bus)(nil)

// keyBucket returns the settings of the bucket of key records. Unlike other
// buckets it refuses direct reads: a replica of the stream may lack its end.
func keyBucket(replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:               subject.KeyStream,
		Subjects:           []string{subject.KeyPrefix + ">"},
		Description:        "key records, read by the proxies while no control plane responds",
		Retention:          jetstream.LimitsPolicy,
		MaxMsgsPerSubject:  1,
		Discard:            jetstream.DiscardNew,
		Storage:            jetstream.FileStorage,
		Replicas:           replicas,
		DenyDelete:         true,
		AllowAtomicPublish: true,
	}
}

func (b *Bus) KeyState(ctx context.Context) (s keybucket.State, err error) {
	stream, err := b.js.Stream(ctx, subject.KeyStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) || err == nil && !b.keysDeclared.Load() {
		stream, err = b.putStream(ctx, keyBucket(max(b.cfg.Replicas, 1)))
		b.keysDeclared.Store(err == nil)
	}

	if err != nil {
		return s, fmt.Errorf("bus: open bucket %s: %w", subject.KeyBucket, err)
	}
	if !stream.CachedInfo().Config.AllowAtomicPublish {
		return s, fmt.Errorf("bus: bucket %s: NATS is too old to write several entries at once", subject.KeyBucket)
	}

	s.Last = stream.CachedInfo().State.LastSeq
	m, err := stream.GetLastMsgForSubject(ctx, subject.KeyPrefix+subject.KeyMark)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return s, nil
	}
	if err != nil {
		return s, fmt.Errorf("bus: read the mark of bucket %s: %w", subject.KeyBucket, err)
	}

	var mark wire.KeyMark
	if json.Unmarshal(m.Data, &mark) == nil && mark.Valid() { // otherwise NATS has written it for a stolen proxy
		s.Mark, s.At = mark, m.Sequence
	}

	return s, nil
}

func (b *Bus) NextKeyEntry(ctx context.Context, after uint64) (found keybucket.Found, sequence uint64, err error) {
	stream, err := b.js.Stream(ctx, subject.KeyStream)
	if err != nil {
		return found, 0, fmt.Errorf("bus: open bucket %s: %w", subject.KeyBucket, err)
	}
	m, err := stream.GetMsg(ctx, after+1, jetstream.WithGetMsgSubject(subject.KeyPrefix+">"))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return found, 0, nil
	}
	if err != nil {
		return found, 0, fmt.Errorf("bus: read bucket %s behind %d: %w", subject.KeyBucket, after, err)
	}
	return keyFound(m), m.Sequence, nil
}

func keyFound(m *jetstream.RawStreamMsg) (found keybucket.Found) {
	name := strings.TrimPrefix(m.Subject, subject.KeyPrefix)
	if name == subject.KeyMark {
		var mark wire.KeyMark
		found.Foreign = json.Unmarshal(m.Data, &mark) != nil || !mark.Valid()
		return found
	}
	var entry wire.KeyEntry
	err := errors.Join(found.Hash.UnmarshalText([]byte(name)), json.Unmarshal(m.Data, &entry))
	found.Foreign = err != nil || !entry.Valid(found.Hash)
	return found
}

// AppendKeys implements keybucket.Bucket. NATS stores all messages of a batch or
// none of them.
func (b *Bus) AppendKeys(ctx context.Context, last uint64, entries []wire.KeyEntry, mark *wire.KeyMark) (uint64, error) {
	batch := rand.Text()
	var messages []*nats.Msg
	add := func(name string, value any) error {
		data, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("bus: encode key record: %w", err)
		}
		m := nats.NewMsg(subject.KeyPrefix + name)
		m.Data = data
		m.Header.Set("Nats-Batch-Id", batch)
		m.Header.Set("Nats-Batch-Sequence", strconv.Itoa(len(messages)+1))
		messages = append(messages, m)
		return nil
	}

	for i := range entries {
		if err := add(entries[i].Hash.String(), &entries[i]); err != nil {
			return 0, err
		}
	}

	if mark != nil {
		if err := add(subject.KeyMark, mark); err != nil {
			return 0, err
		}
	}

	messages[0].Header.Set(jetstream.ExpectedLastSeqHeader, strconv.FormatUint(last, 10))
	return b.publishBatch(ctx, messages)
}

// publishBatch publishes the messages of a batch, and returns the sequence number
// of the last one.
func (b *Bus) publishBatch(ctx context.Context, messages []*nats.Msg) (uint64, error) {
	end := len(messages) - 1
	for _, m := range messages[:end] {
		if err := b.nc.PublishMsg(m); err != nil {
			return 0, fmt.Errorf("bus: write to bucket %s: %w", subject.KeyBucket, err)
		}
	}

	messages[end].Header.Set("Nats-Batch-Commit", "1")
	response, err := b.nc.RequestMsgWithContext(ctx, messages[end])
	if err != nil {
		return 0, fmt.Errorf("bus: write to bucket %s: %w", subject.KeyBucket, err)
	}

	var stored struct {
		Sequence uint64              `json:"seq"`
		Count    int                 `json:"count"`
		Error    *jetstream.APIError `json:"error"`
	}

	if err := json.Unmarshal(response.Data, &stored); err != nil {
		return 0, fmt.Errorf("bus: write to bucket %s: %w", subject.KeyBucket, err)
	}

	switch {
	case stored.Error != nil && isOvertaken(stored.Error):
		return 0, keybucket.ErrOvertaken
	case stored.Error != nil:
		return 0, fmt.Errorf("bus: write to bucket %s: %w", subject.KeyBucket, stored.Error)
	case stored.Count != len(messages):
		return 0, fmt.Errorf("bus: write to bucket %s: NATS has stored %d of %d messages", subject.KeyBucket, stored.Count, len(messages))
	}

	return stored.Sequence, nil
}
