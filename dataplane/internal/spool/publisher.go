package spool

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"modelgateway/dataplane/internal/logdedup"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
)

// Stream takes batches. An error means that the batch may or may not be
// stored; publishing it again is harmless.
type Stream interface {
	PublishUsage(ctx context.Context, session int64, batchID string, payload []byte) error
}

const (
	// maxEvents bounds the events of one message.
	maxEvents = 500
	// gather is how long events wait for others to share a message with.
	batchDelay = 50 * time.Millisecond
	// look is the pause between looks for events that were not settled in time.
	publishInterval = 500 * time.Millisecond
	// publishTimeout bounds one message.
	publishTimeout = 5 * time.Second
)

// Publisher carries events from the spool to the stream.
type Publisher struct {
	spool   *Spool
	stream  Stream
	log     *slog.Logger
	metrics publisherMetrics
	stop    context.CancelFunc
	task    sync.WaitGroup
	// trouble keeps faults that go on out of the log. It belongs to who drains.
	repeatedErrors logdedup.Filter
}

// NewPublisher returns a Publisher that is not started.
func NewPublisher(s *Spool, stream Stream, log *slog.Logger, reg prometheus.Registerer) *Publisher {
	return &Publisher{spool: s, stream: stream, log: log, metrics: newPublisherMetrics(reg, s)}
}

// Start publishes until Stop.
func (p *Publisher) Start(ctx context.Context) {
	ctx, p.stop = context.WithCancel(ctx)
	p.task.Go(func() { p.run(ctx) })
}

// Stop publishes what is queued, if the stream takes it, and ends.
func (p *Publisher) Stop() {
	p.stop()
	p.task.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), publishTimeout)
	defer cancel()
	p.publishDue(ctx)
}

func (p *Publisher) run(ctx context.Context) {
	ticker := time.NewTicker(publishInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-p.spool.Wake():
			timer := time.NewTimer(batchDelay)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return
			}
		}
		p.publishDue(ctx)
	}
}

// drain publishes all that is due. After a failure the rest waits for the next
// look.
func (p *Publisher) publishDue(ctx context.Context) {
	for ctx.Err() == nil {
		batch := p.spool.NextBatch(maxEvents, time.Now())
		if batch == nil {
			return
		}
		err := p.publish(ctx, batch)
		if p.repeatedErrors.IsNew(err) {
			p.log.Warn("publish usage", slog.Any("error", err), slog.Int("events", len(batch.Events)))
		}
		if err != nil {
			p.spool.Requeue(batch)
			p.metrics.failed.Inc()
			return
		}
		p.metrics.published.Add(float64(len(batch.Events)))
	}
}

func (p *Publisher) publish(ctx context.Context, batch *Batch) error {
	// The id is new for each attempt: an answer that calls it a duplicate would not prove that it is stored.
	id := ident.Kind("bat").New()
	message := event.Batch{V: event.Version, BatchID: id, Session: batch.Session, Events: batch.Events}
	payload := message.AppendJSON(make([]byte, 0, batch.size+len(batch.Events)+128))
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	return p.stream.PublishUsage(ctx, batch.Session, id, payload)
}

type publisherMetrics struct{ published, failed prometheus.Counter }

func newPublisherMetrics(reg prometheus.Registerer, s *Spool) publisherMetrics {
	f := promauto.With(reg)
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "mgw_usage_unsettled_age_seconds", Help: "Time since the oldest request finished whose event is not known to be settled.",
	}, func() float64 {
		if oldest := s.OldestUnsettled(); !oldest.IsZero() {
			return time.Since(oldest).Seconds()
		}
		return 0
	})
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "mgw_spool_used_places", Help: "Places of the spool taken by running requests and unsettled events.",
	}, func() float64 { return float64(s.UsedCapacity()) })
	return publisherMetrics{
		published: f.NewCounter(prometheus.CounterOpts{Name: "mgw_usage_published_total", Help: "Usage events published, repetitions included."}),
		failed:    f.NewCounter(prometheus.CounterOpts{Name: "mgw_usage_publish_failures_total", Help: "Usage messages that the stream did not confirm."}),
	}
}
