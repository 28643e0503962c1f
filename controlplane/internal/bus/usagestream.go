package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"modelgateway/shared/platform/retry"
	"modelgateway/shared/subject"
)

const (
	// watchInterval is how often the usage stream is looked at.
	watchInterval = 2 * time.Second
	// maxPending is how many messages may wait for settlement before it counts as behind: a few seconds of work.
	maxPending = 4 * settlers * maxFetchedMessages
	// purgeInterval is how often settled usage is removed that is no longer kept.
	purgeInterval = 10 * time.Minute
)

type streamMetrics struct{ bytes, limit, pending prometheus.Gauge }

func newStreamMetrics(reg prometheus.Registerer) *streamMetrics {
	f := promauto.With(reg)
	return &streamMetrics{
		bytes: f.NewGauge(
			prometheus.GaugeOpts{Name: "mgw_usage_stream_bytes", Help: "Size of the usage stream on each NATS server that stores it."},
		),
		limit: f.NewGauge(prometheus.GaugeOpts{
			Name: "mgw_usage_stream_max_bytes",
			Help: "Maximum size of the usage stream, 0 if only the disk limits it. Raise an alarm when mgw_usage_stream_bytes is " +
				"above 70 % of it.",
		}),
		pending: f.NewGauge(
			prometheus.GaugeOpts{Name: "mgw_usage_stream_pending_messages", Help: "Messages of the usage stream that are not settled."},
		),
	}
}

// watchUsage measures the usage stream and removes what is no longer kept, until
// ctx ends.
func (b *Bus) watchUsage(ctx context.Context, metrics *streamMetrics) {
	for purge := time.Now(); ctx.Err() == nil; retry.Sleep(ctx, watchInterval) {
		if err := b.measureUsage(ctx, metrics); err != nil {
			continue // without NATS no proxy gets a response either; the consumer logs it
		}
		if time.Now().Before(purge) {
			continue
		}
		purge = time.Now().Add(purgeInterval)
		if err := b.PurgeUsage(ctx, time.Now()); err != nil && ctx.Err() == nil {
			b.log.Warn("removal of old usage from the stream failed", slog.Any("error", err))
		}
	}
}

// measureUsage sets the metrics and whether settlement is behind.
func (b *Bus) measureUsage(ctx context.Context, metrics *streamMetrics) error {
	stream, consumer, err := b.usageState(ctx)
	if err != nil {
		return err
	}
	pending := consumer.NumPending + uint64(consumer.NumAckPending)
	b.backlog.Store(pending > maxPending)
	metrics.bytes.Set(float64(stream.CachedInfo().State.Bytes))
	metrics.limit.Set(float64(max(stream.CachedInfo().Config.MaxBytes, 0)))
	metrics.pending.Set(float64(pending))
	return nil
}

func (b *Bus) usageState(ctx context.Context) (jetstream.Stream, *jetstream.ConsumerInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	config, _, err := b.usageConsumer(ctx)
	if err != nil {
		return nil, nil, err
	}
	stream, err := b.js.Stream(ctx, subject.UsageStream)
	if err != nil {
		return nil, nil, fmt.Errorf("bus: read stream %s: %w", subject.UsageStream, err)
	}
	consumer, err := stream.Consumer(ctx, config.Durable)
	if err != nil {
		return nil, nil, fmt.Errorf("bus: read consumer %s: %w", config.Durable, err)
	}
	return stream, consumer.CachedInfo(), nil
}

// PurgeUsage removes the messages from the usage stream that are settled and older
// than UsageKept. Unsettled ones stay.
func (b *Bus) PurgeUsage(ctx context.Context, now time.Time) error {
	if b.cfg.UsageKept <= 0 {
		return nil
	}

	stream, consumer, err := b.usageState(ctx)
	if err != nil {
		return err
	}

	keepFrom := now.Add(-b.cfg.UsageKept)
	low, high := stream.CachedInfo().State.FirstSeq, consumer.AckFloor.Stream+1
	for low < high { // the first message that is kept is in [low, high]
		middle := low + (high-low)/2
		message, err := stream.GetMsg(ctx, middle)
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			low = middle + 1 // it was removed in the meantime
		case err != nil:
			return fmt.Errorf("bus: read message %d of %s: %w", middle, subject.UsageStream, err)
		case message.Time.Before(keepFrom):
			low = middle + 1
		default:
			high = middle
		}
	}

	if low <= stream.CachedInfo().State.FirstSeq {
		return nil
	}
	if err := stream.Purge(ctx, jetstream.WithPurgeSequence(low)); err != nil {
		return fmt.Errorf("bus: purge stream %s: %w", subject.UsageStream, err)
	}

	return nil
}
