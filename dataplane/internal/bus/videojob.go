package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"modelgateway/dataplane/internal/videojob"
	"modelgateway/shared/event"
	"modelgateway/shared/subject"
)

var (
	_ videojob.Store = (*Bus)(nil)
	_ videojob.Queue = (*Bus)(nil)
)

func (b *Bus) CreateVideo(ctx context.Context, v *event.Video) (*event.VideoResponse, error) {
	return requestVideo(ctx, b, subject.VideoCreate, v)
}

func (b *Bus) GetVideo(ctx context.Context, q *event.VideoGetRequest) (*event.VideoResponse, error) {
	return requestVideo(ctx, b, subject.VideoGet, q)
}

func (b *Bus) UpdateVideo(ctx context.Context, v *event.Video) (*event.VideoResponse, error) {
	return requestVideo(ctx, b, subject.VideoUpdate, v)
}

func (b *Bus) BackUpVideo(ctx context.Context, v *event.Video) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("bus: encode video job: %w", err)
	}
	if _, err := b.js.Publish(ctx, subject.VideoJob(v.ID), data, jetstream.WithRetryAttempts(0)); err != nil {
		return fmt.Errorf("bus: back up video job: %w", err)
	}
	return nil
}

// videoTimeout bounds one request about a video job.
const videoTimeout = 5 * time.Second

func requestVideo(ctx context.Context, b *Bus, to string, request any) (*event.VideoResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, videoTimeout)
	defer cancel()
	return send[event.VideoResponse](ctx, b, to, request)
}

// fetchTimeout is how long one fetch from the work queue waits for a task.
const fetchTimeout = 5 * time.Second

func (b *Bus) NextVideoTask(ctx context.Context) (*videojob.Task, error) {
	consumer, err := b.js.Consumer(ctx, subject.VideoPollStream, subject.VideoPollConsumer)
	for err == nil && ctx.Err() == nil {
		var m jetstream.Msg
		m, err = b.fetchVideoTask(ctx, consumer)
		if err == nil {
			return b.newVideoTask(m)
		}
		if errors.Is(err, nats.ErrTimeout) || errors.Is(err, context.DeadlineExceeded) {
			err = nil
		}
	}
	if err != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("bus: receive task of a video job: %w", err)
	}
	return nil, ctx.Err()
}

// fetchVideoTask waits for one message of the work queue.
func (b *Bus) fetchVideoTask(ctx context.Context, consumer jetstream.Consumer) (jetstream.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, b.fetchTimeout)
	defer cancel()
	return consumer.Next(jetstream.FetchContext(ctx)) //nolint:wrapcheck // the caller wraps it
}

// newVideoTask returns the task of a message.
func (b *Bus) newVideoTask(m jetstream.Msg) (*videojob.Task, error) {
	var t videojob.Task
	if err := json.Unmarshal(m.Data(), &t.Poll); err != nil {
		_ = m.Term() // no proxy can decode it
		return nil, fmt.Errorf("bus: decode task of a video job: %w", err)
	}
	t.Deliveries = 1
	if meta, err := m.Metadata(); err == nil {
		t.Deliveries = int(min(meta.NumDelivered, 1000))
	}
	t.Acknowledge = func() { b.logAckError(m.Ack()) }
	t.RetryAfter = func(d time.Duration) { b.logAckError(m.NakWithDelay(d)) }
	return &t, nil
}

// logAckError logs that an acknowledgement failed. The task is delivered again,
// which is harmless.
func (b *Bus) logAckError(err error) {
	if err != nil {
		b.log.Warn("acknowledgement of a video job's task failed", slog.Any("error", err))
	}
}
