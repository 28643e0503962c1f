package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"modelgateway/controlplane/internal/video"
	"modelgateway/shared/event"
	"modelgateway/shared/subject"
)

var (
	_ video.Queue       = (*Bus)(nil)
	_ video.BackupStore = (*Bus)(nil)
)

// ServeVideos answers what proxies ask about video jobs.
func (b *Bus) ServeVideos(s *video.Service) error {
	unavailable := event.VideoReply{V: event.Version, Status: event.VideoUnavailable}
	return b.subscribe(map[string]nats.MsgHandler{
		subject.VideoCreate: answer(b, s.Create, unavailable),
		subject.VideoGet:    answer(b, s.Get, unavailable),
		subject.VideoUpdate: answer(b, s.Update, unavailable),
	})
}

// errorNoRoom is the server's code for a subject that already has its one
// message.
const errorNoRoom = 10077

// EnqueuePolls implements video.Queue. A job that is queued already stays
// queued once: the stream takes one message per job. All are sent before the
// first one's answer is waited for.
func (b *Bus) EnqueuePolls(ctx context.Context, polls ...event.VideoPoll) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answers := make([]jetstream.PubAckFuture, len(polls))
	for i, p := range polls {
		data, err := json.Marshal(p)
		if err != nil {
			return fmt.Errorf("bus: encode video poll: %w", err)
		}
		if answers[i], err = b.js.PublishAsync(subject.VideoPoll(p.ID), data); err != nil {
			return fmt.Errorf("bus: queue video job: %w", err)
		}
	}
	for i, answer := range answers {
		var refused *jetstream.APIError
		select {
		case <-answer.Ok():
		case err := <-answer.Err():
			if !errors.As(err, &refused) || refused.ErrorCode != errorNoRoom {
				return fmt.Errorf("bus: queue video job %s: %w", polls[i].ID, err)
			}
		case <-ctx.Done():
			return fmt.Errorf("bus: queue video job %s: %w", polls[i].ID, ctx.Err())
		}
	}
	return nil
}

// KeepVideo implements video.Keeper.
func (b *Bus) KeepVideo(ctx context.Context, v *event.Video) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("bus: encode video job: %w", err)
	}
	_, err = b.js.Publish(ctx, subject.VideoJob(v.ID), data, jetstream.WithRetryAttempts(0))
	if errors.Is(err, jetstream.ErrNoStreamResponse) { // somebody has deleted it
		if err = b.declareVideoJobs(ctx); err == nil {
			_, err = b.js.Publish(ctx, subject.VideoJob(v.ID), data)
		}
	}
	if err != nil {
		return fmt.Errorf("bus: keep video job: %w", err)
	}
	return nil
}

func (b *Bus) declareVideoJobs(ctx context.Context) error {
	if _, err := b.js.CreateOrUpdateStream(ctx, videoJobStream(max(b.cfg.Replicas, 1))); err != nil {
		return fmt.Errorf("bus: declare stream %s: %w", subject.VideoJobStream, err)
	}
	return nil
}

// readMessages bounds what is asked for at once when kept jobs are read.
const readMessages = 500

// KeptVideos implements epoch.Anchor.
func (b *Bus) VideoBackups(ctx context.Context, since time.Time) ([]video.Backup, error) {
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
		return nil, fmt.Errorf("bus: read kept video jobs: %w", err)
	}
	defer func() { _ = stream.DeleteConsumer(context.WithoutCancel(ctx), consumer.CachedInfo().Name) }() // goes by itself too
	var newest video.Newest
	for read, left := uint64(0), consumer.CachedInfo().NumPending; left > 0; {
		batch, err := consumer.Fetch(int(min(left, readMessages)), jetstream.FetchContext(ctx))
		if err != nil {
			return nil, fmt.Errorf("bus: read kept video jobs: %w", err)
		}
		for m := range batch.Messages() {
			meta, err := m.Metadata()
			if read++; err != nil || meta.Sequence.Consumer != read {
				return nil, fmt.Errorf("bus: kept video job %d is missing: %w", read, err)
			}
			newest.Add(video.ReadKept(m.Data()))
			left = meta.NumPending
		}
		if err := batch.Error(); err != nil {
			return nil, fmt.Errorf("bus: read kept video jobs: %w", err)
		}
	}
	return newest.All(), nil
}
