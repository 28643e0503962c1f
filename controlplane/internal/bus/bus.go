// Package bus owns the control plane's side of NATS: the connection, the
// declaration of every stream and bucket, the handlers of what proxies ask,
// the consumer of usage, and what is pushed to proxies.
//
// It translates between messages and the domain services and decides nothing.
package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"modelgateway/shared/subject"
)

// Config says how to reach NATS.
type Config struct {
	URL, User, Password string
	// CAFile, CertFile and KeyFile turn on TLS; empty ones are left to the URL's scheme.
	CAFile, CertFile, KeyFile string
	// Replicas is how many servers keep each stream and bucket; zero means one.
	Replicas int
	// MonitorURL is the address of the server's monitoring port, for Diagnose; empty if it has none.
	MonitorURL string
	// Name tells this replica apart in the server's list of connections.
	Name string
}

// Incarnations remembers that the usage stream was made anew, so that proxies
// publish again what may have been lost with the old one. It is told before
// the stream is made, and so perhaps more often than once: one that was made
// and not remembered would lose events.
type Incarnations interface {
	StreamCreated(ctx context.Context) error
	// UsageReplay returns the epoch, and since when usage is to be settled once more in it; nil for all that there is.
	UsageReplay(ctx context.Context) (clusterEpoch int64, from *time.Time, err error)
}

// Bus is one connection. Close it last.
type Bus struct {
	cfg          Config
	nc           *nats.Conn
	js           jetstream.JetStream
	log          *slog.Logger
	incarnations Incarnations
	// epoch is the one that usage is to be settled in; zero as long as nobody has said.
	epoch atomic.Int64

	stop    context.CancelFunc
	ctx     context.Context
	tasks   sync.WaitGroup
	workers chan struct{}
	subs    []*nats.Subscription
	// declaring lets one settlement at a time make a stream anew that all of them miss.
	declaring sync.Mutex
	// mu guards stopped, after which no task is begun.
	mu      sync.Mutex
	stopped bool
}

const (
	// maxWorkers bounds the requests that read or write Postgres by themselves, outside batches.
	maxWorkers = 32
	// requestTimeout bounds each of them.
	requestTimeout = 5 * time.Second
	// pollAckWait is how long a proxy may take over one video job before another one gets it.
	pollAckWait = 90 * time.Second
	// drainTimeout bounds how long a stop waits for what the server has already sent.
	drainTimeout = 2 * time.Second
	// usageKept is how long settled usage stays in the stream, for replay after a loss in Postgres.
	usageKept = 7 * 24 * time.Hour
	// statesKept is how many states of one video job are kept. One is needed; the others are in case that the last ones
	// are of proxies that had an old record and changed nothing.
	statesKept = 8
)

// Connect connects, for ever from then on: the client reconnects by itself.
func Connect(cfg Config, incarnations Incarnations, log *slog.Logger) (*Bus, error) {
	options := []nats.Option{
		nats.Name(cfg.Name), nats.MaxReconnects(-1), nats.ReconnectWait(250 * time.Millisecond), nats.RetryOnFailedConnect(false),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { log.Warn("nats disconnected", slog.Any("error", err)) }),
		nats.ReconnectHandler(func(*nats.Conn) { log.Info("nats reconnected") }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			log.Warn("nats", slog.Any("error", err))
		}),
	}
	if cfg.User != "" {
		options = append(options, nats.UserInfo(cfg.User, cfg.Password))
	}
	if cfg.CAFile != "" {
		options = append(options, nats.RootCAs(cfg.CAFile))
	}
	if cfg.CertFile != "" {
		options = append(options, nats.ClientCert(cfg.CertFile, cfg.KeyFile))
	}
	nc, err := nats.Connect(cfg.URL, options...)
	if err != nil {
		return nil, fmt.Errorf("bus: connect: %w", err)
	}
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncTimeout(requestTimeout))
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("bus: jetstream: %w", err)
	}
	b := &Bus{cfg: cfg, nc: nc, js: js, log: log, incarnations: incarnations, workers: make(chan struct{}, maxWorkers)}
	b.ctx, b.stop = context.WithCancel(context.Background())
	return b, nil
}

// Ready tells whether the connection stands.
func (b *Bus) Ready(context.Context) error {
	if !b.nc.IsConnected() {
		return fmt.Errorf("bus: %s", b.nc.Status())
	}
	return nil
}

// Stop ends subscriptions and the consumer, and waits for what they started.
// What the server has already sent is still taken in: another replica will not
// get it.
func (b *Bus) Stop() {
	b.drain()
	b.stop()
	b.mu.Lock()
	b.stopped = true // a handler may still be at work
	b.mu.Unlock()
	b.tasks.Wait()
}

// drain ends the subscriptions when the server knows of it and every message
// that came until then has been handled, or when that takes too long, as it
// does without a connection.
func (b *Bus) drain() {
	drained := make(chan struct{}, len(b.subs))
	left := 0
	for _, sub := range b.subs {
		sub.SetClosedHandler(func(string) { drained <- struct{}{} })
		if err := sub.Drain(); err == nil { // fails only on a closed connection or subscription
			left++
		}
	}
	limit := time.NewTimer(drainTimeout)
	defer limit.Stop()
	for ; left > 0; left-- {
		select {
		case <-drained:
		case <-limit.C:
			return
		}
	}
}

// Close sends what is buffered and closes the connection.
func (b *Bus) Close() {
	_ = b.nc.FlushTimeout(2 * time.Second) // best effort on the way out
	b.nc.Close()
}

// Declare creates or updates every stream and bucket. It may run at any time
// and from any replica.
func (b *Bus) Declare(ctx context.Context) error {
	b.declaring.Lock()
	defer b.declaring.Unlock()
	replicas := max(b.cfg.Replicas, 1)
	if err := b.declareUsage(ctx, replicas); err != nil {
		return err
	}
	if err := b.declareVideoJobs(ctx); err != nil {
		return err
	}
	_, err := b.js.CreateOrUpdateStream(ctx, videoStream(replicas))
	if err != nil {
		return fmt.Errorf("bus: declare stream %s: %w", subject.VideoPollStream, err)
	}
	_, err = b.js.CreateOrUpdateConsumer(ctx, subject.VideoPollStream, jetstream.ConsumerConfig{
		Durable: subject.VideoPollConsumer, AckPolicy: jetstream.AckExplicitPolicy, AckWait: pollAckWait, MaxAckPending: -1,
	})
	if err != nil {
		return fmt.Errorf("bus: declare consumer %s: %w", subject.VideoPollConsumer, err)
	}
	_, err = b.js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket: subject.CatalogBucket, Description: "the catalog that proxies hold", History: 1,
		Storage: jetstream.FileStorage, Replicas: replicas,
	})
	if err != nil {
		return fmt.Errorf("bus: declare bucket %s: %w", subject.CatalogBucket, err)
	}
	return nil
}

// videoStream, videoJobStream and usageStream are what Declare makes and Diagnose expects.
func videoStream(replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: subject.VideoPollStream, Subjects: []string{subject.VideoPollAll}, Description: "video jobs to be polled",
		Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage, Replicas: replicas,
		MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew, DiscardNewPerSubject: true,
	}
}

func videoJobStream(replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: subject.VideoJobStream, Subjects: []string{subject.VideoJobAll}, Description: "states of video jobs, in case that Postgres loses them",
		Retention: jetstream.LimitsPolicy, MaxAge: usageKept, MaxMsgsPerSubject: statesKept, Discard: jetstream.DiscardOld,
		Storage: jetstream.FileStorage, Replicas: replicas,
	}
}

func usageStream(replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: subject.UsageStream, Subjects: []string{subject.UsageAll}, Description: "usage of finished requests",
		Retention: jetstream.LimitsPolicy, MaxAge: usageKept, Discard: jetstream.DiscardNew,
		Storage: jetstream.FileStorage, Replicas: replicas, Duplicates: 2 * time.Minute,
	}
}

func (b *Bus) declareUsage(ctx context.Context, replicas int) error {
	_, err := b.js.Stream(ctx, subject.UsageStream)
	isNew := errors.Is(err, jetstream.ErrStreamNotFound)
	if err != nil && !isNew {
		return fmt.Errorf("bus: look up stream %s: %w", subject.UsageStream, err)
	}
	if isNew {
		if err := b.incarnations.StreamCreated(ctx); err != nil {
			return fmt.Errorf("bus: note new stream %s: %w", subject.UsageStream, err)
		}
	}
	_, err = b.js.CreateOrUpdateStream(ctx, usageStream(replicas))
	if err != nil {
		return fmt.Errorf("bus: declare stream %s: %w", subject.UsageStream, err)
	}
	config, _, err := b.usageConsumer(ctx)
	if err != nil {
		return err
	}
	if _, err = b.js.CreateOrUpdateConsumer(ctx, subject.UsageStream, config); err != nil {
		return fmt.Errorf("bus: declare consumer %s: %w", config.Durable, err)
	}
	return nil
}
