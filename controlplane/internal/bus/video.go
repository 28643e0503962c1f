package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"modelgateway/controlplane/internal/videojob"
	"modelgateway/shared/event"
	"modelgateway/shared/subject"
)

var (
	_ videojob.Queue       = (*Bus)(nil)
	_ videojob.BackupStore = (*Bus)(nil)
)

// ServeVideos handles the proxies' requests about video jobs.
func (b *Bus) ServeVideos(s *videojob.Service) error {
	unavailable := event.VideoResponse{V: event.Version, Status: event.VideoUnavailable}
	return b.subscribe(map[string]nats.MsgHandler{
		subject.VideoCreate: requestHandler(b, s.Create, unavailable),
		subject.VideoGet:    requestHandler(b, s.Get, unavailable),
		subject.VideoUpdate: requestHandler(b, s.Update, unavailable),
	})
}

// codeSubjectFull is the server's error code for a subject that already has the
// maximum number of messages.
const codeSubjectFull = 10077

// EnqueuePolls implements videojob.Queue. The stream takes one message per job, so a
// job that is already queued is not queued twice. All messages are sent before
// the first acknowledgement is awaited.
func (b *Bus) EnqueuePolls(ctx context.Context, polls ...event.VideoPoll) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	acks := make([]jetstream.PubAckFuture, len(polls))
	for i, p := range polls {
		data, err := json.Marshal(p)
		if err != nil {
			return fmt.Errorf("bus: encode video poll: %w", err)
		}
		if acks[i], err = b.js.PublishAsync(subject.VideoPoll(p.ID), data); err != nil {
			return fmt.Errorf("bus: queue video job: %w", err)
		}
	}

	for i, ack := range acks {
		var refused *jetstream.APIError
		select {
		case <-ack.Ok():
		case err := <-ack.Err():
			if !errors.As(err, &refused) || refused.ErrorCode != codeSubjectFull {
				return fmt.Errorf("bus: queue video job %s: %w", polls[i].ID, err)
			}
		case <-ctx.Done():
			return fmt.Errorf("bus: queue video job %s: %w", polls[i].ID, ctx.Err())
		}
	}

	return nil
}

func (b *Bus) BackUpVideo(ctx context.Context, v *event.Video) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("bus: encode video job: %w", err)
	}

	options := []jetstream.PublishOpt{jetstream.WithRetryAttempts(0)}
	if v.Rev == 1 {
		options = append(options, jetstream.WithExpectLastSequencePerSubject(0))
	}

	_, err = b.js.Publish(ctx, subject.VideoJob(v.ID), data, options...)
	if errors.Is(err, jetstream.ErrNoStreamResponse) { // the stream was deleted
		if err = b.declareVideoJobs(ctx); err == nil {
			_, err = b.js.Publish(ctx, subject.VideoJob(v.ID), data, options...)
		}
	}

	if err != nil {
		return fmt.Errorf("bus: back up video job: %w", err)
	}

	return nil
}

// NewestVideo implements videojob.BackupStore. The newest state is not always the last one: a replica may store a state
// late.
func (b *Bus) NewestVideo(ctx context.Context, id string) (*event.Video, error) {
	stream, err := b.js.Stream(ctx, subject.VideoJobStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil //nolint:nilnil // the interface: nil if there is none
	}
	if err != nil {
		return nil, fmt.Errorf("bus: look up stream %s: %w", subject.VideoJobStream, err)
	}

	var newest videojob.Newest
	for seq := uint64(1); ; seq++ {
		m, err := stream.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(subject.VideoJob(id)))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return newest.Job(id), nil
		}
		if err != nil {
			return nil, fmt.Errorf("bus: read backups of video job %s: %w", id, err)
		}
		newest.Add(videojob.DecodeBackup(m.Data))
		seq = m.Sequence
	}
}

func (b *Bus) declareVideoJobs(ctx context.Context) error {
	if _, err := b.putStream(ctx, videoJobStream(max(b.cfg.Replicas, 1))); err != nil {
		return fmt.Errorf("bus: declare stream %s: %w", subject.VideoJobStream, err)
	}
	return nil
}

// backupFetchSize is how many backed-up states are fetched at once.
const backupFetchSize = 500

func (b *Bus) VideoBackups(ctx context.Context, since time.Time) ([]videojob.Backup, error) {
	stream, err := b.js.Stream(ctx, subject.VideoJobStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("bus: look up stream %s: %w", subject.VideoJobStream, err)
	}

	config := jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, InactiveThreshold: time.Minute}
	if !since.IsZero() {
		config.DeliverPolicy, config.OptStartTime = jetstream.DeliverByStartTimePolicy, &since
	}

	consumer, err := stream.CreateConsumer(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("bus: read backups of video jobs: %w", err)
	}
	// the server deletes it too, when it is inactive
	defer func() { _ = stream.DeleteConsumer(context.WithoutCancel(ctx), consumer.CachedInfo().Name) }()
	var newest videojob.Newest
	for read, left := uint64(0), consumer.CachedInfo().NumPending; left > 0; {
		batch, err := consumer.Fetch(int(min(left, backupFetchSize)), jetstream.FetchContext(ctx))
		if err != nil {
			return nil, fmt.Errorf("bus: read backups of video jobs: %w", err)
		}
		for m := range batch.Messages() {
			meta, err := m.Metadata()
			if read++; err != nil || meta.Sequence.Consumer != read {
				return nil, fmt.Errorf("bus: backup %d of the video jobs is missing: %w", read, err)
			}
			newest.Add(videojob.DecodeBackup(m.Data()))
			left = meta.NumPending
		}
		if err := batch.Error(); err != nil {
			return nil, fmt.Errorf("bus: read backups of video jobs: %w", err)
		}
	}

	return newest.All(), nil
}
