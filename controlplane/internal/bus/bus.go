// Package bus owns the control plane's side of NATS: the connection, the
// declaration of every stream and bucket, the handlers of the proxies' requests,
// the consumer of the usage stream, and the messages pushed to proxies.
//
// It translates between messages and calls of the domain services, and makes no
// decisions of its own.
//
// A lease request of proxy p arrives on mgw.lease.request.p. The subject's last token must be the proxy of the session and the reply
// subject must be in p's inbox, or the message is dropped. It is decoded and given to leasing.Service.Request, with a function
// that publishes the response: that is called after the commit, from another goroutine.
//
// A usage message is fetched from the consumer with those of the next moments, given to settle.Settler as one batch, and
// acknowledged after the commit; then the new watermark of each session is pushed to its proxy. If the transaction fails,
// nothing is acknowledged, and JetStream delivers the messages again.
package bus

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"modelgateway/controlplane/internal/recovery"
	"modelgateway/shared/certfile"
	"modelgateway/shared/subject"
)

// Config has the address of the NATS server and how to log in.
type Config struct {
	URL, User, Password string
	// CAFile, CertFile and KeyFile are PEM files for TLS. If all are empty, the URL's scheme decides whether TLS is used.
	CAFile, CertFile, KeyFile string
	// Replicas is the number of NATS servers that store each stream and bucket; zero means one.
	Replicas int
	// MonitorURL has the URLs of the servers' monitoring ports, separated by commas, for Diagnose; empty if there are none.
	MonitorURL string
	// UsageMaxBytes bounds the usage stream on each server; zero means no bound but the disk. UsageKept is how long settled
	// usage stays in it; zero means the default.
	UsageMaxBytes int64
	UsageKept     time.Duration
	// GatherTime is the least time between the beginnings of two settlements, unless a full batch of messages waits. An event
	// that comes after a pause is settled at once. Zero means a quarter of a second.
	GatherTime time.Duration
	// Inbox is the prefix of the subjects of replies; empty means that of control planes.
	Inbox string
	// Name identifies this replica in the server's list of connections.
	Name string
}

// StreamStore records in Postgres that the usage stream was created, and from which time it is replayed.
type StreamStore interface {
	// RecordNewStream is called before the usage stream is created, so that proxies publish again the events that may
	// have been lost with a deleted stream. If the replica stops in between, a stream is recorded twice, which is
	// harmless. A stream without a record would lose events.
	RecordNewStream(ctx context.Context) error
	// UsageReplay returns the cluster epoch, and the time from which usage has to be settled again in it. A nil time
	// means the whole stream.
	UsageReplay(ctx context.Context) (clusterEpoch int64, from *time.Time, err error)
}

// Bus is one connection to NATS. Stop it, then Close it.
type Bus struct {
	cfg     Config
	nc      *nats.Conn
	js      jetstream.JetStream
	log     *slog.Logger
	server  *certfile.Peer
	streams StreamStore
	// probe is the subject of this replica's probes in the stream of changes.
	probe string
	// changesWindow is the longest window for which this replica declares the stream of changes, in nanoseconds; zero if it
	// does not.
	changesWindow atomic.Int64
	// keysDeclared means that the bucket of key records has the settings of this version.
	keysDeclared atomic.Bool
	// backlog is set while settlement is behind; proxies then do not publish again what is not settled yet.
	backlog atomic.Bool
	// clusterEpoch selects the consumer of the usage stream; zero until SetClusterEpoch is called.
	clusterEpoch atomic.Int64

	stop  context.CancelFunc
	ctx   context.Context
	tasks sync.WaitGroup
	subs  []*nats.Subscription
	// declaring serialises Declare: several consumers may find at the same time that a stream was deleted.
	declaring sync.Mutex
	// mu guards stopped. No task starts once it is true.
	mu      sync.Mutex
	stopped bool
}

const (
	// maxWorkers bounds the requests on one subject that use Postgres at the same time, outside of batches. Each subject
	// has workers of its own: a heartbeat must not wait for balances or video jobs, which clients can ask for at any rate.
	maxWorkers = 8
	// requestTimeout bounds each of these requests.
	requestTimeout = 5 * time.Second
	// pollAckWait is how long a proxy may take to poll one video job before the job is given to another proxy.
	pollAckWait = 90 * time.Second
	// drainTimeout bounds how long Stop waits for messages that the server has already sent.
	drainTimeout = 2 * time.Second
	// usageRetention is how long unsettled usage and the states of video jobs stay in their streams.
	usageRetention = 7 * 24 * time.Hour
	// changesKept is how long a change stays in the stream of changes. Proxies need it for seconds; a direct revocation is
	// in Postgres long before.
	changesKept = 7 * 24 * time.Hour
	// statesPerVideoJob is how many states of one video job are backed up. The newest valid one is needed; the newest
	// ones may be rejected updates of proxies that had an outdated record.
	statesPerVideoJob = 8
)

// Connect connects to NATS. After that, the client reconnects by itself without a limit.
func Connect(cfg Config, streams StreamStore, log *slog.Logger) (*Bus, error) {
	options := []nats.Option{
		nats.Name(cfg.Name), nats.CustomInboxPrefix(cmp.Or(cfg.Inbox, subject.ControlInbox)),
		nats.MaxReconnects(-1), nats.ReconnectWait(250 * time.Millisecond), nats.RetryOnFailedConnect(false),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { log.Warn("disconnected from NATS", slog.Any("error", err)) }),
		nats.ReconnectHandler(func(*nats.Conn) { log.Info("reconnected to NATS") }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			log.Warn("NATS client reported an error", slog.Any("error", err))
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

	server := &certfile.Peer{}
	options = append(options, func(o *nats.Options) error {
		if o.TLSConfig == nil { // with one, the client takes the longer jitter of TLS, also for a connection without TLS
			o.ReconnectJitterTLS = o.ReconnectJitter
		}
		o.TLSConfig = server.Watch(o.TLSConfig)
		return nil
	})
	nc, err := nats.Connect(cfg.URL, options...)
	if err != nil {
		return nil, fmt.Errorf("bus: connect: %w", err)
	}

	js, err := jetstream.New(nc, jetstream.WithPublishAsyncTimeout(requestTimeout))
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("bus: open jetstream: %w", err)
	}

	b := &Bus{
		probe:   subject.From(subject.FreshProbe, rand.Text()),
		cfg:     cfg,
		nc:      nc,
		js:      js,
		log:     log,
		server:  server,
		streams: streams,
	}
	b.ctx, b.stop = context.WithCancel(context.Background())

	return b, nil
}

// Ready returns an error unless the connection is established.
func (b *Bus) Ready(context.Context) error {
	if !b.nc.IsConnected() {
		return fmt.Errorf("bus: the NATS connection is %s", b.nc.Status())
	}
	return nil
}

// Connected reports whether there is a connection to NATS.
func (b *Bus) Connected() bool { return b.nc.IsConnected() }

// Reconnects returns how many times a lost connection was made again.
func (b *Bus) Reconnects() uint64 { return b.nc.Stats().Reconnects }

// CertificateExpiry returns the time at which the certificate of the server expires, or an error without TLS. It does not use
// nats.Conn.TLSConnectionState, which reads the state of the connection without its lock.
func (b *Bus) CertificateExpiry() (time.Time, error) {
	at, err := b.server.Expiry()
	if err != nil {
		return time.Time{}, fmt.Errorf("bus: %w", err)
	}
	return at, nil
}

// Stop ends the subscriptions and the consumer, and waits for the tasks that they
// started. Messages that the server has already sent are still handled, because
// no other replica gets them.
func (b *Bus) Stop() {
	b.drain()
	b.stop()
	b.mu.Lock()
	b.stopped = true // a handler may still be running
	b.mu.Unlock()
	b.tasks.Wait()
}

// drain unsubscribes and waits until every message received so far has been
// handled, for drainTimeout at most: without a connection it would never end.
func (b *Bus) drain() {
	drained := make(chan struct{}, len(b.subs))
	open := 0
	for _, sub := range b.subs {
		sub.SetClosedHandler(func(string) { drained <- struct{}{} })
		if err := sub.Drain(); err == nil { // fails only on a closed connection or subscription
			open++
		}
	}

	limit := time.NewTimer(drainTimeout)
	defer limit.Stop()

	for ; open > 0; open-- {
		select {
		case <-drained:
		case <-limit.C:
			return
		}
	}
}

// Close sends buffered messages and closes the connection.
func (b *Bus) Close() {
	_ = b.nc.FlushTimeout(2 * time.Second) // best effort
	b.nc.Close()
}

// Declare creates or updates every stream, consumer and bucket. Any replica may
// call it at any time. While NATS has no leader, or creates a stream for another
// replica, it waits.
func (b *Bus) Declare(ctx context.Context) error {
	const limit, pause = 30 * time.Second, 100 * time.Millisecond
	for began := time.Now(); ; {
		err := b.declare(ctx)
		passes := errors.Is(withoutLeader(err), recovery.ErrNoLeader) || errors.Is(err, jetstream.ErrStreamNotFound)
		if err == nil || !passes || time.Since(began) > limit {
			return err
		}
		b.log.WarnContext(ctx, "streams are declared again: NATS has no leader, or creates one for another replica", "error", err)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

func (b *Bus) KeepChanges(ctx context.Context, window time.Duration) error {
	if int64(window) <= b.changesWindow.Load() {
		return nil
	}
	b.changesWindow.Store(int64(window))
	return b.Declare(ctx)
}

func (b *Bus) declare(ctx context.Context) error {
	b.declaring.Lock()
	defer b.declaring.Unlock()
	replicas := max(b.cfg.Replicas, 1)
	if err := b.declareUsage(ctx, replicas); err != nil {
		return err
	}
	if err := b.declareVideoJobs(ctx); err != nil {
		return err
	}

	if b.changesWindow.Load() > 0 {
		if err := b.declareChanges(ctx, replicas); err != nil {
			return err
		}
	}

	_, err := b.putStream(ctx, videoPollStream(replicas))
	if err != nil {
		return fmt.Errorf("bus: declare stream %s: %w", subject.VideoPollStream, err)
	}

	_, err = b.js.CreateOrUpdateConsumer(ctx, subject.VideoPollStream, jetstream.ConsumerConfig{
		Durable:       subject.VideoPollConsumer,
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       pollAckWait,
		MaxAckPending: -1,
	})
	if err != nil {
		return fmt.Errorf("bus: declare consumer %s: %w", subject.VideoPollConsumer, err)
	}

	_, err = b.js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket:      subject.CatalogBucket,
		Description: "catalog of models, prices and routes, read by the proxies",
		History:     1,
		Storage:     jetstream.FileStorage,
		Replicas:    replicas,
	})
	if err != nil {
		return fmt.Errorf("bus: declare bucket %s: %w", subject.CatalogBucket, err)
	}

	return nil
}

// videoPollStream, videoJobStream and usageStream return the settings that Declare writes and Diagnose expects.
func videoPollStream(replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:                 subject.VideoPollStream,
		Subjects:             []string{subject.VideoPollAll},
		Description:          "video jobs that wait to be polled",
		Retention:            jetstream.WorkQueuePolicy,
		Storage:              jetstream.FileStorage,
		Replicas:             replicas,
		MaxMsgsPerSubject:    1,
		Discard:              jetstream.DiscardNew,
		DiscardNewPerSubject: true,
	}
}

func videoJobStream(replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              subject.VideoJobStream,
		Subjects:          []string{subject.VideoJobAll},
		Description:       "backup of the states of video jobs, for a loss of commits in Postgres",
		Retention:         jetstream.LimitsPolicy,
		MaxAge:            usageRetention,
		MaxMsgsPerSubject: statesPerVideoJob,
		Discard:           jetstream.DiscardOld,
		Storage:           jetstream.FileStorage,
		Replicas:          replicas,
	}
}

func (b *Bus) usageStream(replicas int) jetstream.StreamConfig {
	unlimited := int64(-1)
	return jetstream.StreamConfig{
		MaxBytes:    cmp.Or(b.cfg.UsageMaxBytes, unlimited),
		Compression: jetstream.S2Compression,
		Name:        subject.UsageStream,
		Subjects:    []string{subject.UsageAll},
		Description: "usage events of finished requests",
		Retention:   jetstream.LimitsPolicy,
		MaxAge:      max(usageRetention, b.cfg.UsageKept),
		Discard:     jetstream.DiscardNew,
		Storage:     jetstream.FileStorage,
		Replicas:    replicas,
		Duplicates:  2 * time.Minute,
	}
}

// putStream creates a stream, or gives it this configuration. NATS is asked for a change only if there is one: other replicas
// declare the same streams and consumers at the same time.
func (b *Bus) putStream(ctx context.Context, config jetstream.StreamConfig) (jetstream.Stream, error) {
	stream, err := b.js.CreateStream(ctx, config)
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return b.js.UpdateStream(ctx, config) //nolint:wrapcheck // by the caller
	}
	return stream, err //nolint:wrapcheck // by the caller
}

func (b *Bus) declareUsage(ctx context.Context, replicas int) error {
	_, err := b.js.Stream(ctx, subject.UsageStream)
	isNew := errors.Is(err, jetstream.ErrStreamNotFound)
	if err != nil && !isNew {
		return fmt.Errorf("bus: look up stream %s: %w", subject.UsageStream, err)
	}

	if isNew {
		if err := b.streams.RecordNewStream(ctx); err != nil {
			return fmt.Errorf("bus: record new stream %s: %w", subject.UsageStream, err)
		}
	}

	_, err = b.putStream(ctx, b.usageStream(replicas))
	if err != nil {
		return fmt.Errorf("bus: declare stream %s: %w", subject.UsageStream, err)
	}

	config, _, err := b.usageConsumer(ctx)
	if err != nil {
		return err
	}
	if err := b.declareUsageConsumer(ctx, &config); err != nil {
		return err
	}

	return b.deleteEarlierConsumers(ctx, config.Durable)
}
