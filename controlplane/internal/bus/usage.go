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

	"modelgateway/controlplane/internal/settle"
	"modelgateway/shared/event"
	"modelgateway/shared/platform/sleep"
	"modelgateway/shared/subject"
)

const (
	// fetchMessages and fetchWait bound what one settlement gathers; a message holds up to 500 events. Settlements of a
	// long queue are large, because what they cost beside the events is one pool, lease and ledger entry for each account.
	fetchMessages = 64
	fetchWait     = time.Second
	// settlers is how many settlements of a replica run at once: while one waits for Postgres, the other prepares its rows.
	// Pools are locked at the end of a settlement, so that they seldom meet; more would.
	settlers = 2
	// settleTimeout bounds one settlement.
	settleTimeout = 30 * time.Second
	// retryPause follows a settlement that failed as a whole.
	retryPause = 500 * time.Millisecond
)

// ConsumeUsage settles what comes in on the usage stream until Stop. A message
// is acknowledged after its events are committed; what fails is delivered
// again, to this replica or another.
//
// While settlements run, the next one is fetched and read.
func (b *Bus) ConsumeUsage(s *settle.Settler, reg prometheus.Registerer) {
	c := &consumer{bus: b, settler: s, metrics: newUsageMetrics(reg)}
	ready := make(chan delivery)
	b.tasks.Go(func() {
		defer close(ready)
		again(b, func() error { return c.fetch(b.ctx, ready) })
	})
	for range settlers {
		b.tasks.Go(func() {
			for d := range ready {
				if err := c.settle(b.ctx, d); err != nil && b.ctx.Err() == nil {
					b.log.Error("settle usage", slog.Any("error", err))
					sleep.For(b.ctx, retryPause)
				}
			}
		})
	}
}

// again runs something until the bus stops.
func again(b *Bus, run func() error) {
	for b.ctx.Err() == nil {
		if err := run(); err != nil && b.ctx.Err() == nil {
			b.log.Error("fetch usage", slog.Any("error", err))
			sleep.For(b.ctx, retryPause)
		}
	}
}

type consumer struct {
	bus     *Bus
	settler *settle.Settler
	metrics *usageMetrics
}

// delivery is what one settlement is made of.
type delivery struct {
	messages []jetstream.Msg
	items    []settle.Item
}

// fetch passes delivery after delivery on until something fails.
func (c *consumer) fetch(ctx context.Context, ready chan<- delivery) error {
	config, clusterEpoch, err := c.bus.usageConsumer(ctx)
	if err != nil {
		return err
	}
	durable, err := c.bus.js.Consumer(ctx, subject.UsageStream, config.Durable)
	if errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrConsumerNotFound) {
		return c.bus.Declare(ctx) // the stream was deleted: make it anew, and proxies publish again
	}
	if err != nil {
		return fmt.Errorf("open consumer: %w", err)
	}
	for ctx.Err() == nil && c.bus.epoch.Load() <= clusterEpoch {
		messages, err := fetch(durable)
		if err != nil {
			return fmt.Errorf("fetch: %w", err)
		}
		if len(messages) == 0 {
			continue
		}
		d := delivery{messages: messages}
		for _, m := range messages {
			d.items = append(d.items, settle.Read(m.Data())...)
		}
		select {
		case ready <- d:
		case <-ctx.Done():
			release(messages)
		}
	}
	return nil
}

// release has messages delivered again, to whoever asks next.
func release(messages []jetstream.Msg) {
	for _, m := range messages {
		_ = m.Nak() // without it, the acknowledgement's time-out brings it back
	}
}

// fetch waits for a message and takes what else is there: under load the
// batches grow by themselves, and a lone message waits for nothing.
func fetch(durable jetstream.Consumer) ([]jetstream.Msg, error) {
	first, err := durable.Fetch(1, jetstream.FetchMaxWait(fetchWait))
	if err != nil {
		return nil, fmt.Errorf("ask for one message: %w", err)
	}
	messages, err := gather(first)
	if err != nil || len(messages) == 0 {
		return nil, err
	}
	rest, err := durable.FetchNoWait(fetchMessages - 1)
	if err != nil {
		return messages, nil //nolint:nilerr // what has come is settled; the next fetch meets the error
	}
	more, _ := gather(rest)
	return append(messages, more...), nil
}

func gather(batch jetstream.MessageBatch) ([]jetstream.Msg, error) {
	var messages []jetstream.Msg
	for m := range batch.Messages() {
		messages = append(messages, m)
	}
	if len(messages) > 0 {
		return messages, nil
	}
	if err := batch.Error(); err != nil {
		return nil, fmt.Errorf("wait for messages: %w", err)
	}
	return nil, nil
}

func (c *consumer) settle(ctx context.Context, d delivery) error {
	// What is begun is finished: a stop does not cut a commit short.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	start := time.Now()
	result, err := c.settler.Settle(ctx, d.items)
	if err != nil {
		for _, m := range d.messages {
			_ = m.NakWithDelay(retryPause) // without it, the acknowledgement's time-out brings it back
		}
		return err
	}
	for _, m := range d.messages {
		if err := m.Ack(); err != nil {
			c.bus.log.Warn("acknowledge usage", slog.Any("error", err)) // delivered again, and found settled
		}
	}
	c.metrics.settled(result, time.Since(start))
	if result.Quarantined > 0 {
		c.bus.log.Error("usage events put into quarantine", slog.Int("events", result.Quarantined))
	}
	for _, mark := range latest(result.Watermarks) {
		if err := c.bus.settled(mark); err != nil {
			c.bus.log.Warn("push watermark", slog.Any("error", err))
		}
	}
	return nil
}

// latest keeps one watermark per session, the last.
func latest(marks []event.Settled) map[int64]event.Settled {
	last := map[int64]event.Settled{}
	for _, mark := range marks {
		if before, ok := last[mark.Session]; ok && mark.Watermark == 0 {
			mark.Beyond = append(before.Beyond, mark.Beyond...) // a session unknown to Postgres: one number each
		}
		last[mark.Session] = mark
	}
	return last
}

type usageMetrics struct {
	events  *prometheus.CounterVec
	seconds prometheus.Histogram
	lag     prometheus.Gauge
}

func newUsageMetrics(reg prometheus.Registerer) *usageMetrics {
	f := promauto.With(reg)
	return &usageMetrics{
		events: f.NewCounterVec(prometheus.CounterOpts{
			Name: "mgw_settlement_events_total", Help: "Usage events taken from the stream, by what became of them.",
		}, []string{"outcome"}),
		seconds: f.NewHistogram(prometheus.HistogramOpts{
			Name: "mgw_settlement_batch_seconds", Help: "Time of one settlement.",
			Buckets: []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 5, 30},
		}),
		lag: f.NewGauge(prometheus.GaugeOpts{
			Name: "mgw_settlement_lag_seconds", Help: "Age of the oldest request in the last settlement, from its end to its commit.",
		}),
	}
}

func (m *usageMetrics) settled(r settle.Result, d time.Duration) {
	m.events.WithLabelValues("settled").Add(float64(r.Settled))
	m.events.WithLabelValues("repeated").Add(float64(r.Repeated))
	m.events.WithLabelValues("quarantined").Add(float64(r.Quarantined))
	m.seconds.Observe(d.Seconds())
	if r.Oldest > 0 {
		m.lag.Set(time.Since(time.UnixMilli(r.Oldest)).Seconds())
	}
}
