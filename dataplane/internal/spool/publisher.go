package spool

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/lease/usagelog"
	"modelgateway/shared/platform/retry"
)

// Stream is the usage stream. After an error of PublishUsage the batch may or
// may not be stored; publishing it again is harmless.
type Stream interface {
	PublishUsage(ctx context.Context, session int64, batchID string, payload []byte) error
}

const (
	// maxBatchEvents bounds the events of one message.
	maxBatchEvents = 500
	// publishTimeout bounds the publication of one message.
	publishTimeout = 5 * time.Second
	// directoryInterval is how often the directory of the spool is looked at, the write buffer is flushed, and the space of removed
	// segments is freed.
	directoryInterval = 500 * time.Millisecond
)

// Publisher publishes the events of a spool to the usage stream.
type Publisher struct {
	spool   *Spool
	stream  Stream
	log     *slog.Logger
	metrics publisherMetrics
	stop    context.CancelFunc
	task    sync.WaitGroup
	// repeatedErrors keeps an error that persists from being logged again. Only publishBatch uses it.
	repeatedErrors retry.ErrorFilter
}

// NewPublisher returns a Publisher that is not started.
func NewPublisher(s *Spool, stream Stream, log *slog.Logger, reg prometheus.Registerer) *Publisher {
	return &Publisher{
		spool:   s,
		stream:  stream,
		log:     log,
		metrics: newPublisherMetrics(reg, s),
	}
}

// Start publishes events until Stop is called.
func (p *Publisher) Start(ctx context.Context) {
	ctx, p.stop = context.WithCancel(ctx)
	p.task.Go(func() { p.run(ctx) })
	p.task.Go(func() { p.watchDirectory(ctx) })
}

// Stop cancels the publication under way, tries for publishTimeout to publish
// the events that are due, and returns.
func (p *Publisher) Stop() {
	p.stop()
	p.task.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), publishTimeout)
	defer cancel()
	for published := true; published && ctx.Err() == nil; {
		published, _ = p.publishBatch(ctx) // it logs the error
	}
}

// watchDirectory looks regularly whether the directory of the spool is still
// there, flushes the write buffer, and frees the space of removed segments. It is a task of its own
// because a publication can take long.
func (p *Publisher) watchDirectory(ctx context.Context) {
	ticker := time.NewTicker(directoryInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			p.spool.CheckDirectory()
			p.spool.FlushBuffer()
			p.spool.CloseRemoved()
		}
	}
}

func (p *Publisher) run(ctx context.Context) {
	started := time.Now()
	schedule := usagelog.NewSchedule(0)
	timer := time.NewTimer(0)
	defer timer.Stop()

	for ctx.Err() == nil {
		publish, wake := schedule.Next(time.Since(started))
		if publish {
			p.spool.clearWake()
			p.publishNext(ctx, schedule, started)
			continue
		}

		timer.Reset(wake - time.Since(started))
		queued := p.spool.Wake()
		if schedule.Waits() {
			queued = nil // otherwise every request would start a thread for this goroutine, which has nothing to do yet
		}

		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-queued:
			schedule.EventQueued(time.Since(started))
		}
	}
}

// publishNext publishes one message, if events are due.
func (p *Publisher) publishNext(ctx context.Context, schedule *usagelog.Schedule, started time.Time) {
	published, err := p.publishBatch(ctx)
	if !published && err == nil {
		schedule.Drained(time.Since(started))
		return
	}
	schedule.Published(time.Since(started), err == nil)
}

// publishBatch publishes the next batch. It returns false if no event is due.
func (p *Publisher) publishBatch(ctx context.Context) (published bool, err error) {
	batch := p.spool.NextBatch(maxBatchEvents, time.Now())
	if batch == nil {
		return false, nil
	}
	err = p.publish(ctx, batch)
	if p.repeatedErrors.IsNew(err) {
		p.log.Warn("publication of usage events failed", slog.Any("error", err), slog.Int("events", len(batch.Events)))
	}
	if err != nil {
		p.spool.Requeue(batch)
		p.metrics.failed.Inc()
		return false, err
	}
	p.metrics.published.Add(float64(len(batch.Events)))
	return true, nil
}

func (p *Publisher) publish(ctx context.Context, batch *Batch) error {
	// Each attempt has its own id. If the server called a repeated id a duplicate, that would not prove that the message is
	// stored.
	id := ident.Kind("bat").New()
	message := event.Batch{
		V:       event.Version,
		BatchID: id,
		Session: batch.Session,
		Events:  batch.Events,
	}
	payload := message.AppendJSON(make([]byte, 0, batch.size+len(batch.Events)+128))
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	return p.stream.PublishUsage(ctx, batch.Session, id, payload)
}

type publisherMetrics struct{ published, failed prometheus.Counter }

func newPublisherMetrics(reg prometheus.Registerer, s *Spool) publisherMetrics {
	f := promauto.With(reg)
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "mgw_usage_oldest_unsettled_seconds",
		Help: "Seconds since the request of the oldest unsettled usage event finished. 0 if every event is settled.",
	}, func() float64 { return s.UnsettledAge().Seconds() })

	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "mgw_spool_used_capacity", Help: "Spool capacity in use: running requests and unsettled usage events.",
	}, func() float64 { return float64(s.UsedCapacity()) })

	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "mgw_spool_capacity", Help: "Spool capacity. No request is admitted while 90 % of it are in use.",
	}, func() float64 { return float64(s.Capacity()) })

	f.NewGaugeFunc(
		prometheus.GaugeOpts{Name: "mgw_spool_bytes", Help: "Size of the segments of the spool."},
		func() float64 { return float64(s.Bytes()) },
	)
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "mgw_spool_max_bytes", Help: "Maximum size of the spool. No request is admitted while 90 % of it are in use.",
	}, func() float64 { return float64(s.cfg.MaxBytes) })

	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "mgw_spool_disk_free_bytes",
		Help: "Bytes that the proxy can still write to the file system of the spool; NaN while it cannot be read.",
	}, s.freeDisk)

	return publisherMetrics{
		published: f.NewCounter(prometheus.CounterOpts{
			Name: "mgw_usage_published_total",
			Help: "Usage events published to the usage stream. An event that is published again counts again.",
		}),
		failed: f.NewCounter(prometheus.CounterOpts{
			Name: "mgw_usage_publish_failures_total", Help: "Messages of usage events that the usage stream did not acknowledge.",
		}),
	}
}
