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

// CreateVideo implements videojob.Store.
func (b *Bus) CreateVideo(ctx context.Context, v *event.Video) (*event.VideoReply, error) {
	return requestVideo(ctx, b, subject.VideoCreate, v)
}

// GetVideo implements videojob.Store.
func (b *Bus) GetVideo(ctx context.Context, q *event.VideoGet) (*event.VideoReply, error) {
	return requestVideo(ctx, b, subject.VideoGet, q)
}

// UpdateVideo implements videojob.Store.
func (b *Bus) UpdateVideo(ctx context.Context, v *event.Video) (*event.VideoReply, error) {
	return requestVideo(ctx, b, subject.VideoUpdate, v)
}

// videoTimeout bounds one message about a job.
const videoTimeout = 5 * time.Second

func requestVideo(ctx context.Context, b *Bus, name string, q any) (*event.VideoReply, error) {
	ctx, cancel := context.WithTimeout(ctx, videoTimeout)
	defer cancel()
	return request[event.VideoReply](ctx, b, name, q)
}

// pollWait is how long one look into the queue waits for a job, unless it is
// told to stop before.
const fetchTimeout = 5 * time.Second

// NextVideoTask implements videojob.Queue.
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
		return nil, fmt.Errorf("bus: take video job: %w", err)
	}
	return nil, ctx.Err()
}

// look waits for one job.
func (b *Bus) fetchVideoTask(ctx context.Context, consumer jetstream.Consumer) (jetstream.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, b.fetchTimeout)
	defer cancel()
	return consumer.Next(jetstream.FetchContext(ctx)) //nolint:wrapcheck // Next wraps
}

func (b *Bus) newVideoTask(m jetstream.Msg) (*videojob.Task, error) {
	var t videojob.Task
	if err := json.Unmarshal(m.Data(), &t.Poll); err != nil {
		_ = m.Term() // nobody can read it
		return nil, fmt.Errorf("bus: decode video job: %w", err)
	}
	t.Deliveries = 1
	if meta, err := m.Metadata(); err == nil {
		t.Deliveries = int(min(meta.NumDelivered, 1000))
	}
	t.Acknowledge = func() { b.logAckError(m.Ack()) }
	t.RetryAfter = func(d time.Duration) { b.logAckError(m.NakWithDelay(d)) }
	return &t, nil
}

// settleTask notes an acknowledgement that could not be sent: the job comes
// again, and is found as it is.
func (b *Bus) logAckError(err error) {
	if err != nil {
		b.log.Warn("acknowledge video job", slog.Any("error", err))
	}
}
