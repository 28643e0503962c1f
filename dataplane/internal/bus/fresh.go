package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"modelgateway/dataplane/internal/session"
	"modelgateway/shared/subject"
	"modelgateway/shared/wire"
)

var _ session.Stream = (*Bus)(nil)

// Follow implements session.Stream. NATS repeats each change that the stream has
// stored, without a guarantee.
func (b *Bus) Follow(apply func(wire.StreamChange)) error {
	_, err := b.nc.Subscribe(subject.ChangedAll, func(m *nats.Msg) {
		handle(b, m, func(c *wire.StreamChange) { apply(*c) })
	})
	if err != nil {
		return fmt.Errorf("bus: subscribe to the stream of changes: %w", err)
	}
	return nil
}

func (b *Bus) PublishBeat(ctx context.Context, beat *wire.Beat) error {
	data, err := json.Marshal(beat)
	if err != nil {
		return fmt.Errorf("bus: encode beat: %w", err)
	}

	options := []jetstream.PublishOpt{jetstream.WithRetryAttempts(0), jetstream.WithExpectStream(subject.ChangeStream)}
	if beat.Previous != 0 { // with zero, NATS would store it only as the first one
		options = append(options, jetstream.WithExpectLastSequencePerSubject(beat.Previous))
	}

	_, err = b.js.Publish(ctx, subject.From(subject.FreshBeat, b.proxy), data, options...)
	if refused, ok := errors.AsType[*jetstream.APIError](err); ok &&
		(refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
			refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant) {
		return session.ErrBeatRefused
	}

	if err != nil {
		return fmt.Errorf("bus: publish beat: %w", err)
	}

	return nil
}

func (b *Bus) Open(ctx context.Context) (session.Reader, error) {
	stream, err := b.js.Stream(ctx, subject.ChangeStream)
	if err != nil {
		return nil, fmt.Errorf("bus: open stream %s: %w", subject.ChangeStream, err)
	}
	return changeReader{stream, subject.From(subject.FreshBeat, b.proxy)}, nil
}

// changeReader reads the stream of changes at its leader: the stream allows no
// direct reads. A consumer would need a permission by which a stolen proxy could
// publish anything.
type changeReader struct {
	stream jetstream.Stream
	beats  string
}

func (r changeReader) Incarnation() string {
	return r.stream.CachedInfo().Config.Metadata[subject.IncarnationKey]
}

func (r changeReader) LastBeat(ctx context.Context) (beat wire.Beat, sequence uint64, err error) {
	m, err := r.stream.GetLastMsgForSubject(ctx, r.beats)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return beat, 0, nil
	}
	if err != nil {
		return beat, 0, fmt.Errorf("bus: read beat: %w", err)
	}
	if err := json.Unmarshal(m.Data, &beat); err != nil {
		return wire.Beat{}, m.Sequence, nil //nolint:nilerr // it was not sent by this process
	}
	return beat, m.Sequence, nil
}

func (r changeReader) NextChange(ctx context.Context, after uint64, direct bool) (c wire.StreamChange, sequence uint64, err error) {
	of := subject.ChangeAll
	if direct {
		of = subject.ChangeDirect + "*"
	}
	m, err := r.stream.GetMsg(ctx, after+1, jetstream.WithGetMsgSubject(of))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return c, 0, nil
	}
	if err != nil {
		return c, 0, fmt.Errorf("bus: read change behind %d: %w", after, err)
	}
	if err := json.Unmarshal(m.Data, &c); err != nil {
		return wire.StreamChange{}, m.Sequence, nil //nolint:nilerr // NATS may have put another text there; it is no change
	}
	return c, m.Sequence, nil
}
