package bus

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"modelgateway/controlplane/internal/changestream"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/subject"
	"modelgateway/shared/wire"
)

var (
	_ changestream.Stream       = (*Bus)(nil)
	_ changestream.DirectStream = (*Bus)(nil)
)

// changeStream returns the settings of the stream of changes. It refuses reads at
// other servers than the one that leads it, since these may lack its end.
func changeStream(replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              subject.ChangeStream,
		Subjects:          []string{subject.FromAll(subject.FreshBeat), subject.FromAll(subject.FreshProbe), subject.ChangeAll},
		Description:       "changes of keys and accounts, in one order with the beats of proxies",
		Retention:         jetstream.LimitsPolicy,
		MaxAge:            changesKept,
		MaxMsgsPerSubject: 1,
		Discard:           jetstream.DiscardNew,
		Storage:           jetstream.FileStorage,
		Replicas:          replicas,
		RePublish:         &jetstream.RePublish{Source: subject.ChangeAll, Destination: subject.ChangedAll},
	}
}

// declareChanges creates the stream of changes, or updates it. The replica that
// creates it sets its incarnation.
func (b *Bus) declareChanges(ctx context.Context, replicas int) error {
	config := changeStream(replicas)
	stream, err := b.js.Stream(ctx, subject.ChangeStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		config.Metadata = b.changesMetadata(map[string]string{subject.IncarnationKey: rand.Text()})
		if _, err = b.js.CreateStream(ctx, config); err == nil {
			return nil
		}
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another replica has created it with another incarnation
			stream, err = b.js.Stream(ctx, subject.ChangeStream)
		}
	}

	if err != nil {
		return fmt.Errorf("bus: declare stream %s: %w", subject.ChangeStream, err)
	}

	config.Metadata = maps.Clone(stream.CachedInfo().Config.Metadata)
	if config.Metadata[subject.IncarnationKey] == "" {
		config.Metadata = map[string]string{subject.IncarnationKey: rand.Text()}
	}

	config.Metadata = b.changesMetadata(config.Metadata)
	if _, err = b.js.UpdateStream(ctx, config); err != nil {
		return fmt.Errorf("bus: declare stream %s: %w", subject.ChangeStream, err)
	}

	return nil
}

// changesMetadata adds the window of this replica's sessions to the metadata of the
// stream of changes, if it is longer than the one there. It never becomes shorter:
// sessions of before may have the longer one, also some that Postgres has lost.
func (b *Bus) changesMetadata(metadata map[string]string) map[string]string {
	if window := time.Duration(b.changesWindow.Load()); window > windowIn(metadata) {
		metadata[subject.WindowKey] = window.String()
	}
	return metadata
}

// windowIn returns the window in the metadata of the stream of changes; zero if there is
// none.
func windowIn(metadata map[string]string) time.Duration {
	window, _ := time.ParseDuration(metadata[subject.WindowKey])
	return window
}

// changes opens the stream of changes, and creates it again if it is missing. It declares
// it again if another replica has set a shorter window at the same time as this one.
func (b *Bus) changes(ctx context.Context) (stream jetstream.Stream, incarnation string, err error) {
	stream, err = b.js.Stream(ctx, subject.ChangeStream)
	shorter := err == nil && windowIn(stream.CachedInfo().Config.Metadata) < time.Duration(b.changesWindow.Load())
	if (shorter || errors.Is(err, jetstream.ErrStreamNotFound)) && b.changesWindow.Load() > 0 {
		if err = b.Declare(ctx); err == nil {
			stream, err = b.js.Stream(ctx, subject.ChangeStream)
		}
	}
	if err != nil {
		return nil, "", fmt.Errorf("bus: open stream %s: %w", subject.ChangeStream, err)
	}
	return stream, stream.CachedInfo().Config.Metadata[subject.IncarnationKey], nil
}

func (b *Bus) LastChange(ctx context.Context, subject string) (last wire.StreamChange, at session.Place, sequence uint64, err error) {
	stream, incarnation, err := b.changes(ctx)
	if err != nil {
		return last, at, 0, err
	}
	m, err := stream.GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return last, at, 0, nil
	}
	if err != nil {
		return last, at, 0, fmt.Errorf("bus: read the last change: %w", err)
	}
	last = decodeChange(m.Data)
	return last, session.Place{Incarnation: incarnation, Sequence: m.Sequence, ID: last.ID}, m.Sequence, nil
}

// decodeChange decodes a message of the stream; one that is no change is not
// valid.
func decodeChange(data []byte) (c wire.StreamChange) {
	if err := json.Unmarshal(data, &c); err != nil {
		return wire.StreamChange{}
	}
	return c
}

// AppendChange implements changestream.Stream. It sets no message id: the answer
// "duplicate" would not prove that the stream still has the message.
func (b *Bus) AppendChange(ctx context.Context, c *wire.StreamChange, behind uint64) (session.Place, error) {
	_, incarnation, err := b.changes(ctx)
	if err != nil {
		return session.Place{}, err
	}

	data, err := json.Marshal(c)
	if err != nil {
		return session.Place{}, fmt.Errorf("bus: encode change: %w", err)
	}

	ack, err := b.js.Publish(ctx, c.Subject(), data, jetstream.WithExpectLastSequencePerSubject(behind), jetstream.WithRetryAttempts(0))
	if isOvertaken(err) {
		return session.Place{}, changestream.ErrOvertaken
	}
	if err != nil {
		return session.Place{}, fmt.Errorf("bus: append change: %w", err)
	}

	return session.Place{Incarnation: incarnation, Sequence: ack.Sequence, ID: c.ID}, nil
}

// ChangeAt implements changestream.Stream. A server that leads the stream no more
// answers for some seconds as if it did. So the read is framed by reads of a
// message that has just been acknowledged: a server that has it has everything
// before it.
func (b *Bus) ChangeAt(ctx context.Context, at session.Place) (found session.Place, err error) {
	stream, incarnation, err := b.changes(ctx)
	if err != nil {
		return found, err
	}

	id := rand.Text()
	ack, err := b.js.Publish(ctx, b.probe, []byte(id), jetstream.WithRetryAttempts(0))
	if err != nil {
		return found, fmt.Errorf("bus: probe stream %s: %w", subject.ChangeStream, err)
	}
	if err := checkProbe(ctx, stream, ack.Sequence, id); err != nil {
		return found, err
	}

	m, err := stream.GetMsg(ctx, at.Sequence)
	switch {
	case err == nil:
		found = session.Place{Incarnation: incarnation, Sequence: m.Sequence, ID: decodeChange(m.Data).ID}
	case !errors.Is(err, jetstream.ErrMsgNotFound):
		return found, fmt.Errorf("bus: read change %d: %w", at.Sequence, err)
	}

	return found, checkProbe(ctx, stream, ack.Sequence, id)
}

func (b *Bus) NextDirect(ctx context.Context, after uint64) (changestream.Direct, error) {
	stream, incarnation, err := b.changes(ctx)
	if err != nil {
		return changestream.Direct{}, err
	}

	m, err := stream.GetMsg(ctx, after+1, jetstream.WithGetMsgSubject(subject.ChangeDirect+"*"))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return changestream.Direct{Place: session.Place{Incarnation: incarnation}}, nil
	}
	if err != nil {
		return changestream.Direct{}, fmt.Errorf("bus: read direct revocation: %w", err)
	}

	c := decodeChange(m.Data)
	if !c.Valid() || m.Subject != subject.ChangeDirect+c.Change.KeyHash.String() {
		// NATS sends its replies to any subject that a request names, so a stolen proxy can put one in the place of a revocation.
		b.log.ErrorContext(
			ctx,
			"a revocation by an operator was replaced by another text in the stream of changes: revoke the key again",
			slog.String("subject", m.Subject),
		)
		c = wire.StreamChange{}
	}

	return changestream.Direct{
		Change:   c,
		Place:    session.Place{Incarnation: incarnation, Sequence: m.Sequence, ID: c.ID},
		StoredAt: m.Time,
	}, nil
}

func (b *Bus) AppendDirect(ctx context.Context, c *wire.StreamChange) (session.Place, error) {
	_, incarnation, err := b.changes(ctx)
	if err != nil {
		return session.Place{}, err
	}
	data, err := json.Marshal(c)
	if err != nil {
		return session.Place{}, fmt.Errorf("bus: encode revocation: %w", err)
	}
	ack, err := b.js.Publish(ctx, subject.ChangeDirect+c.Change.KeyHash.String(), data, jetstream.WithRetryAttempts(0))
	if err != nil {
		return session.Place{}, fmt.Errorf("bus: append revocation: %w", err)
	}
	return session.Place{Incarnation: incarnation, Sequence: ack.Sequence, ID: c.ID}, nil
}

func (b *Bus) Window(ctx context.Context) (time.Duration, error) {
	stream, _, err := b.changes(ctx)
	if err != nil {
		return 0, err
	}
	window := windowIn(stream.CachedInfo().Config.Metadata)
	if window <= 0 {
		return 0, fmt.Errorf("bus: stream %s does not say for how long sessions are valid", subject.ChangeStream)
	}
	return window, nil
}

// checkProbe returns an error unless the server that answers has the probe.
func checkProbe(ctx context.Context, stream jetstream.Stream, sequence uint64, id string) error {
	m, err := stream.GetMsg(ctx, sequence)
	if err != nil {
		return fmt.Errorf("bus: read probe: %w", err)
	}
	if string(m.Data) != id {
		return fmt.Errorf("bus: stream %s has another message at %d than it has acknowledged", subject.ChangeStream, sequence)
	}
	return nil
}
