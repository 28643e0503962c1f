package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.opentelemetry.io/otel/trace"

	"modelgateway/controlplane/internal/settle"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
	"modelgateway/shared/platform/retry"
	"modelgateway/shared/subject"
)

const (
	// maxFetchedMessages and fetchWait bound one settlement; a message contains up to 500 events. Large settlements are
	// cheaper, because pools, leases and ledger are written once per account and settlement.
	maxFetchedMessages = 64
	fetchWait          = time.Second
	// gatherTime is the default of Config.GatherTime. A settlement makes some 17 statements, whatever the number of its
	// events: if each message were settled alone, they would cost as much as the records do at 5,000 requests a second.
	gatherTime = 250 * time.Millisecond
	// settlers is how many settlements of a replica run at the same time: while one waits for Postgres, the other
	// prepares its rows. Two seldom wait for each other's locks, because pools are locked at the end; more would.
	settlers = 2
	// settleTimeout bounds one settlement.
	settleTimeout = 30 * time.Second
	// retryPause is the time between a failed fetch or settlement and the next attempt.
	retryPause = 500 * time.Millisecond
)

// ConsumeUsage settles the messages of the usage stream until Stop. A message is
// acknowledged after its events are committed. If that fails, it is delivered
// again, to this replica or another.
//
// While settlements run, the next batch is fetched and decoded.
//
// spans makes spans of the settlement of traced requests; nil makes none.
func (b *Bus) ConsumeUsage(s *settle.Settler, reg prometheus.Registerer, spans trace.Tracer) {
	c := &consumer{
		bus:     b,
		settler: s,
		metrics: newUsageMetrics(reg),
		spans:   spans,
	}

	batches := make(chan usageBatch)
	b.tasks.Go(func() {
		defer close(batches)
		c.fetchUntilStop(b.ctx, batches)
	})

	streamMetrics := newStreamMetrics(reg)
	b.tasks.Go(func() { b.watchUsage(b.ctx, streamMetrics) })

	for range settlers {
		b.tasks.Go(func() {
			for batch := range batches {
				if err := c.settle(b.ctx, batch); err != nil && b.ctx.Err() == nil {
					b.log.Error("settlement failed", slog.Any("error", err))
					retry.Sleep(b.ctx, retryPause)
				}
			}
		})
	}
}

type consumer struct {
	bus     *Bus
	settler *settle.Settler
	metrics *usageMetrics
	spans   trace.Tracer
}

// fetchUntilStop calls fetch until ctx ends, after an error with a pause.
func (c *consumer) fetchUntilStop(ctx context.Context, batches chan<- usageBatch) {
	for ctx.Err() == nil {
		if err := c.fetch(ctx, batches); err != nil && ctx.Err() == nil {
			c.bus.log.Error("fetching usage events failed", slog.Any("error", err))
			retry.Sleep(ctx, retryPause)
		}
	}
}

// usageBatch contains the messages of one settlement and their decoded events.
type usageBatch struct {
	messages []jetstream.Msg
	items    []settle.Item
}

// fetch sends batches until an error occurs or the cluster epoch changes. If the
// stream or its consumer is missing, fetch declares all streams again.
func (c *consumer) fetch(ctx context.Context, batches chan<- usageBatch) error {
	config, clusterEpoch, err := c.bus.usageConsumer(ctx)
	if err != nil {
		return err
	}

	durable, err := c.bus.js.Consumer(ctx, subject.UsageStream, config.Durable)
	if errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrConsumerNotFound) {
		return c.bus.Declare(ctx) // proxies then publish their unsettled events again
	}
	if err != nil {
		return fmt.Errorf("open consumer: %w", err)
	}

	var next time.Time // when the next settlement may begin
	for ctx.Err() == nil && c.bus.clusterEpoch.Load() <= clusterEpoch {
		messages, err := fetchMessages(durable, next)
		if err != nil {
			return fmt.Errorf("fetch: %w", err)
		}

		next = time.Now().Add(cmp.Or(c.bus.cfg.GatherTime, gatherTime))
		if len(messages) == 0 {
			continue
		}

		batch := usageBatch{messages: messages}
		for i, m := range messages {
			items := decodeUsage(m.Subject(), m.Data())
			for n := range items {
				items[n].Message = i
			}
			if free := cap(batch.items) - len(batch.items); free < len(items) { // messages have about the same length
				batch.items = slices.Grow(batch.items, len(items)*(len(messages)-i))
			}
			batch.items = append(batch.items, items...)
		}

		select {
		case batches <- batch:
		case <-ctx.Done():
			redeliver(messages)
		}
	}

	return nil
}

// decodeUsage decodes a message. A session's events must come on its own subject
// from its own proxy: NATS can restrict who publishes there, but not what is in a
// message. Whether the session is the proxy's is checked in the settlement.
func decodeUsage(published string, payload []byte) []settle.Item {
	items := settle.DecodeBatch(payload)
	if len(items) == 0 || items[0].BatchSession == 0 {
		return items
	}
	proxy, session, ok := subject.UsageOf(published)
	if !ok || session != items[0].BatchSession {
		settle.RejectForeign(items, published)
	}
	publisher := &settle.Publisher{Proxy: proxy, Session: session}
	for i := range items {
		items[i].Publisher = publisher
	}
	return items
}

// redeliver makes the server deliver messages again, to any replica.
func redeliver(messages []jetstream.Msg) {
	for _, m := range messages {
		_ = m.Nak() // if this fails, the message is delivered again after AckWait
	}
}

// fetchMessages waits for a message and adds those that are available then, and
// those that come until a time. It returns earlier when maxFetchedMessages have come.
func fetchMessages(durable jetstream.Consumer, until time.Time) ([]jetstream.Msg, error) {
	first, err := durable.Fetch(1, jetstream.FetchMaxWait(fetchWait))
	if err != nil {
		return nil, fmt.Errorf("fetch the first message: %w", err)
	}
	messages, err := collect(first)
	if err != nil || len(messages) == 0 {
		return nil, err
	}
	rest, err := fetchUntil(durable, until)
	if err != nil {
		return messages, nil //nolint:nilerr // the first message is settled; the next fetch returns the error
	}
	more, _ := collect(rest)
	return append(messages, more...), nil
}

// leastFetchWait is a time for which it is not worth to wait for messages.
const leastFetchWait = 10 * time.Millisecond

// fetchUntil fetches the other messages of a settlement. It is not interrupted by a
// stop: messages that the server sends meanwhile would be delivered again only after
// the acknowledgement wait.
func fetchUntil(durable jetstream.Consumer, until time.Time) (jetstream.MessageBatch, error) {
	if left := time.Until(until); left >= leastFetchWait {
		return durable.Fetch(maxFetchedMessages-1, jetstream.FetchMaxWait(left)) //nolint:wrapcheck // the caller drops it
	}
	return durable.FetchNoWait(maxFetchedMessages - 1) //nolint:wrapcheck // as above
}

func collect(batch jetstream.MessageBatch) ([]jetstream.Msg, error) {
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

// settle settles a batch, acknowledges its messages and pushes the watermarks. It
// continues when ctx ends, so that a stop does not interrupt a commit. A message with
// an event that could not be settled is delivered again; its others have no effect then.
func (c *consumer) settle(ctx context.Context, batch usageBatch) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	start := time.Now()
	result, err := c.settler.Settle(ctx, batch.items)
	var left *settle.UnsettledError
	if err != nil && !errors.As(err, &left) {
		for _, m := range batch.messages {
			_ = m.NakWithDelay(retryPause) // if this fails, the message is delivered again after AckWait
		}
		return err
	}

	again := c.messagesOf(left)
	for i, m := range batch.messages {
		if again[i] {
			_ = m.NakWithDelay(retryPause) // as above
			continue
		}
		if err := m.Ack(); err != nil {
			c.bus.log.Warn("acknowledging usage failed", slog.Any("error", err)) // it is delivered again and has no effect
		}
	}

	c.metrics.observe(result, time.Since(start))
	traceSettlement(c.spans, slices.DeleteFunc(batch.items, func(i settle.Item) bool { return again[i.Message] }), start)
	if result.Quarantined > 0 {
		c.bus.log.Error("usage events were quarantined", slog.Int("events", result.Quarantined))
	}

	for _, mark := range lastWatermarks(result.Watermarks) {
		if err := c.bus.pushWatermark(mark); err != nil {
			c.bus.log.Warn("pushing a watermark failed", slog.Any("error", err))
		}
	}

	return nil
}

// messagesOf returns the positions of the messages with events that could not be settled, and logs why.
func (c *consumer) messagesOf(left *settle.UnsettledError) map[int]bool {
	if left == nil {
		return nil
	}
	c.bus.log.Error("usage events of an account could not be settled and are tried again",
		slog.String("account_id", ident.Account.Format(left.Items[0].AccountID)), slog.Int("events", len(left.Items)),
		slog.Any("error", left.Err))
	messages := map[int]bool{}
	for i := range left.Items {
		messages[left.Items[i].Message] = true
	}
	return messages
}

// lastWatermarks returns the last watermark of each session.
func lastWatermarks(marks []event.Settled) map[int64]event.Settled {
	last := map[int64]event.Settled{}
	for _, mark := range marks {
		if before, ok := last[mark.Session]; ok && mark.Watermark == 0 {
			mark.Beyond = append(before.Beyond, mark.Beyond...) // the session is unknown to Postgres: each mark reports one number
		}
		last[mark.Session] = mark
	}
	return last
}

type usageMetrics struct {
	events  *prometheus.CounterVec
	seconds prometheus.Histogram
	lag     prometheus.Gauge
	// These are by route.
	calls, charged, providerCost *prometheus.CounterVec
	unknownCosts                 prometheus.Counter
}

func newUsageMetrics(reg prometheus.Registerer) *usageMetrics {
	f := promauto.With(reg)
	return &usageMetrics{
		events: f.NewCounterVec(prometheus.CounterOpts{
			Name: "mgw_settlement_events_total",
			Help: "Usage events processed by settlement, by outcome: settled, duplicate or quarantined.",
		}, []string{"outcome"}),
		seconds: f.NewHistogram(prometheus.HistogramOpts{
			Name: "mgw_settlement_batch_seconds", Help: "Duration of one settlement transaction, including retries on single events.",
			Buckets: []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 5, 30},
		}),
		lag: f.NewGauge(prometheus.GaugeOpts{
			Name: "mgw_settlement_lag_seconds", Help: "Time between the end of the oldest request in the last settlement and its commit.",
		}),
		calls: f.NewCounterVec(prometheus.CounterOpts{
			Name: "mgw_route_calls_total",
			Help: "Settled calls by route whose provider cost is known, with those that did not serve their request.",
		}, []string{"route"}),
		charged: f.NewCounterVec(prometheus.CounterOpts{
			Name: "mgw_route_charged_total",
			Help: "What was charged for the calls of mgw_route_calls_total in currency units, rounded.",
		}, []string{"route"}),
		providerCost: f.NewCounterVec(prometheus.CounterOpts{
			Name: "mgw_route_provider_cost_total",
			Help: "What the calls of mgw_route_calls_total cost the operator in currency units, rounded.",
		}, []string{"route"}),
		unknownCosts: f.NewCounter(prometheus.CounterOpts{
			Name: "mgw_provider_cost_unknown_total",
			Help: "Settled calls whose provider cost is unknown: the route had no provider_price for them.",
		}),
	}
}

func (m *usageMetrics) observe(r settle.Result, d time.Duration) {
	m.events.WithLabelValues("settled").Add(float64(r.Settled))
	m.events.WithLabelValues("duplicate").Add(float64(r.Duplicates))
	m.events.WithLabelValues("quarantined").Add(float64(r.Quarantined))
	m.seconds.Observe(d.Seconds())
	if r.OldestFinishedMS > 0 {
		m.lag.Set(time.Since(time.UnixMilli(r.OldestFinishedMS)).Seconds())
	}

	m.unknownCosts.Add(float64(r.UnknownCosts))
	for route, sums := range r.Routes {
		m.calls.WithLabelValues(route).Add(float64(sums.Calls))
		m.charged.WithLabelValues(route).Add(float64(sums.Charged) / float64(money.Unit))
		m.providerCost.WithLabelValues(route).Add(float64(sums.ProviderCost) / float64(money.Unit))
	}
}
