// Package leasing owns the control plane's side of sessions and leases: lease
// requests and returns, registration, heartbeats and closing of proxy sessions,
// key records, and the confirmation of key changes.
//
// All state is in Postgres, so that any replica can handle any message. Package
// allocator decides about leases; this package collects messages into batches,
// commits them and sends the responses, always after the commit.
//
// A lease request: Request gives it to the batcher; a goroutine takes the next transaction from the batcher, Store.Batch
// runs it, and after the commit the responses and recalls are sent. All requests that arrive meanwhile share the next
// transaction.
//
// A revocation: package key commits it, and calls Announce. Announce pushes the change to all proxies, appends it to the
// stream of changes and records it in the recovery bucket, none of which needs Postgres; then it reads the active sessions,
// and repeats the push until each of them has acknowledged the change, or the stream has confirmed it. A replica that ends in
// between is no loss: package changestream appends what was committed, and heartbeats bring it to the proxies.
package leasing

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

// Config has the times of the protocol. Zero values mean the defaults.
type Config struct {
	// Window is for how long a proxy may admit after a beat in the stream of changes, and for how long it may be silent
	// before its session is to end; the default is 20 s.
	Window time.Duration
	// HeadroomPeriod is how long a pool must have had headroom before it switches to escrow mode; the default is 5 s. A
	// negative one keeps every pool in central mode.
	HeadroomPeriod time.Duration
	// RefusalGracePeriod is how long a refusal that returned units could prevent is delayed; the default is
	// allocator.RefusalGrace.
	RefusalGracePeriod time.Duration
	// ConfirmTimeout bounds how long a change waits for its confirmation; the default is Window plus margin plus 5 s.
	ConfirmTimeout time.Duration
	// Changes is the stream of changes, and Append appends a change to it that was just committed, without a look at
	// Postgres.
	Changes ChangeStream
	Append  func(ctx context.Context, c wire.KeyChange) error
}

func (c Config) withDefaults() Config {
	if c.Window == 0 {
		c.Window = 20 * time.Second
	}
	if c.HeadroomPeriod == 0 {
		c.HeadroomPeriod = 5 * time.Second
	}
	if c.ConfirmTimeout == 0 {
		c.ConfirmTimeout = session.Lasts(c.Window) + 5*time.Second
	}

	return c
}

// RevocationBound returns the longest time that a revocation waits for a proxy that is stopped or cut off, while NATS serves: until
// the change has been in the stream for one window and its presence was verified.
func (c Config) RevocationBound() time.Duration {
	return session.Lasts(c.withDefaults().Window) + askInterval + askTimeout
}

// sweepInterval is the time between two sweeps.
const sweepInterval = time.Second

// Service is the leasing service of one replica. Start it once, then Stop it.
type Service struct {
	cfg     Config
	store   Store
	pusher  Pusher
	log     *slog.Logger
	metrics *metrics
	stop    context.CancelFunc
	done    sync.WaitGroup
	// batches guards the batcher, whose times count from started. arrived wakes the goroutine that runs batches.
	batches  sync.Mutex
	batcher  *allocator.Batcher
	started  time.Time
	arrived  chan struct{}
	lookups  lookups
	streamed streamed
}

// New returns a Service that is not yet started.
func New(cfg Config, store Store, pusher Pusher, log *slog.Logger, reg prometheus.Registerer) *Service {
	cfg = cfg.withDefaults()
	return &Service{
		cfg:     cfg,
		store:   store,
		pusher:  pusher,
		log:     log,
		metrics: newMetrics(reg),
		started: time.Now(),
		arrived: make(chan struct{}, 1),
		lookups: lookups{queue: make(chan *lookup, maxQueue)},
		batcher: allocator.NewBatcher(allocator.BatcherConfig{
			MaxBatch:     maxBatch,
			MaxQueue:     maxQueue,
			RefusalGrace: cfg.RefusalGracePeriod,
			Escrow:       cfg.HeadroomPeriod >= 0,
			Policy:       allocator.EscrowPolicy{HeadroomPeriod: cfg.HeadroomPeriod},
		}),
	}
}

// Start starts the goroutines that run batches, lookups and sweeps.
func (s *Service) Start(ctx context.Context) {
	ctx, s.stop = context.WithCancel(ctx)
	s.done.Go(func() { s.runBatches(ctx) })
	s.done.Go(func() { s.runLookups(ctx) })
	s.done.Go(func() { s.runSweeps(ctx) })
}

// Stop ends these goroutines after their current transactions. Messages that are
// still queued, and later ones, get the response unavailable.
func (s *Service) Stop() {
	s.stop()
	s.done.Wait()
}

// maxClockDifference bounds the difference between the clocks of a proxy and the
// control plane. The usage events of a proxy whose clock is far off would go into
// quarantine.
const maxClockDifference = 5 * time.Minute

// Register opens a session, unless the proxy's clock is wrong.
func (s *Service) Register(ctx context.Context, r *wire.RegisterRequest) (*wire.RegisterResponse, error) {
	if r.ClockMS != 0 && time.Since(time.UnixMilli(r.ClockMS)).Abs() > maxClockDifference {
		return &wire.RegisterResponse{V: wire.Version, Status: wire.ClockDiffers}, nil
	}

	reply, err := s.store.Register(ctx, r, s.cfg.Window)
	if err != nil {
		return nil, fmt.Errorf("register session of %s: %w", r.Name, err)
	}

	s.log.Info("session registered", slog.Int64("session", int64(reply.Session)), slog.String("proxy", r.Name))
	return reply, nil
}

// maxHeartbeatChanges bounds the changes in one heartbeat response.
const maxHeartbeatChanges = 500

// Heartbeat extends a session and returns the changes that its proxy has not applied.
func (s *Service) Heartbeat(ctx context.Context, r *wire.HeartbeatRequest) (*wire.HeartbeatResponse, error) {
	reply, err := s.store.Heartbeat(ctx, r, s.cfg.Window, maxHeartbeatChanges)
	if err != nil {
		return nil, fmt.Errorf("extend session %d: %w", r.Session, err)
	}
	return reply, nil
}

// Close fences a session, and closes it if all its events are settled.
func (s *Service) Close(ctx context.Context, r *wire.CloseRequest) (*wire.CloseResponse, error) {
	closed, err := s.store.Close(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("close session %d: %w", r.Session, err)
	}
	if !closed {
		return &wire.CloseResponse{V: wire.Version, Status: wire.Wait}, nil
	}
	if r.FinalCount == wire.NotFinal { // it had been closed before
		return &wire.CloseResponse{V: wire.Version, Status: wire.Done}, nil
	}
	s.log.Info("session closed", slog.Int64("session", int64(r.Session)), slog.Int64("events", r.FinalCount))
	return &wire.CloseResponse{V: wire.Version, Status: wire.Done}, nil
}

// runSweeps marks expired sessions, which are fenced when the stream of changes has
// confirmed their ends, and closes them after session.CloseAfter.
func (s *Service) runSweeps(ctx context.Context) {
	ticker := time.NewTicker(sweepInterval)
	defer ticker.Stop()

	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		closed, err := s.store.Sweep(ctx, s.cfg.Window, session.CloseAfter, s.pusher.Connected())
		if err != nil && ctx.Err() == nil {
			s.log.Error("sweeping expired sessions failed", slog.Any("error", err))
		}
		if closed > 0 {
			s.log.Warn("sessions are closed whose proxies are silent", slog.Int("closed", closed))
		}
	}
}
