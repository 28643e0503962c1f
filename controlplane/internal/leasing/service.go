// Package leasing owns the control plane's side of sessions and leases:
// batches of ops and returns, registration and renewal of proxies, their
// fencing and closing, key records, and the confirmation of changes of keys
// and accounts.
//
// All state is in Postgres; a Service is one of any number of equal replicas.
// What a lease may do is decided by lease.Book; this package gathers, locks,
// commits and answers. Nothing is answered before it is committed.
package leasing

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/wire"
)

// Config holds the times of the protocol; zero values take the defaults.
type Config struct {
	// Valid is the length of a session; the default is 30 s.
	Valid time.Duration
	// Rest is how long a fenced session's leases are kept for events that may still come; the default is 15 min.
	Rest time.Duration
	// Calm is how long a pool must have had room before sessions may hold idle units of it; the default is 5 s, and a
	// negative one keeps every pool central.
	Calm time.Duration
	// Linger is how long a refusal that waiting could cure is held back for returns; the default is 50 ms.
	Linger time.Duration
	// ConfirmTimeout bounds how long a change waits for its confirmation; the default is Valid plus margin plus 5 s.
	ConfirmTimeout time.Duration
}

func (c Config) withDefaults() Config {
	if c.Valid == 0 {
		c.Valid = 30 * time.Second
	}
	if c.Rest == 0 {
		c.Rest = 15 * time.Minute
	}
	if c.Calm == 0 {
		c.Calm = 5 * time.Second
	}
	if c.Linger == 0 {
		c.Linger = defaultRefusalGrace
	}
	if c.ConfirmTimeout == 0 {
		c.ConfirmTimeout = c.Valid + c.margin() + 5*time.Second
	}
	return c
}

// margin is what is added to a session's length before it counts as over:
// clocks drift and processes are scheduled late.
func (c Config) margin() time.Duration { return 500*time.Millisecond + c.Valid/20 }

// defaultRefusalGrace is the default of Config.Linger.
const defaultRefusalGrace = 50 * time.Millisecond

// sweepPause is the time between two sweeps.
const sweepPause = time.Second

// Service is one replica. Start it once, then Stop.
type Service struct {
	cfg     Config
	store   Store
	pusher  Pusher
	log     *slog.Logger
	metrics *metrics
	stop    context.CancelFunc
	done    sync.WaitGroup
	// batches guards the batcher, whose times count from started. arrived wakes the goroutine that runs batches.
	batches sync.Mutex
	batcher *allocator.Batcher
	started time.Time
	arrived chan struct{}
	lookups lookups
}

// New returns a Service that is not yet started.
func New(cfg Config, store Store, pusher Pusher, log *slog.Logger, reg prometheus.Registerer) *Service {
	cfg = cfg.withDefaults()
	return &Service{
		cfg: cfg, store: store, pusher: pusher, log: log, metrics: newMetrics(reg),
		started: time.Now(), arrived: make(chan struct{}, 1), lookups: lookups{queue: make(chan *lookup, maxQueue)},
		batcher: allocator.NewBatcher(allocator.BatcherConfig{
			MaxBatch: maxBatch, MaxQueue: maxQueue, RefusalGrace: cfg.Linger, RecallTimeout: recallTimeout, RecallInterval: recallInterval,
			Escrow: cfg.Calm >= 0, Policy: allocator.EscrowPolicy{HeadroomPeriod: cfg.Calm},
		}),
	}
}

// Start begins to work off batches and lookups, and to sweep.
func (s *Service) Start(ctx context.Context) {
	ctx, s.stop = context.WithCancel(ctx)
	s.done.Go(func() { s.runBatches(ctx) })
	s.done.Go(func() { s.runLookups(ctx) })
	s.done.Go(func() { s.sweeps(ctx) })
}

// Stop ends them all, after the transaction that is under way, and answers what
// is still queued, and whatever comes later, as unavailable.
func (s *Service) Stop() {
	s.stop()
	s.done.Wait()
}

// Register opens a session.
func (s *Service) Register(ctx context.Context, r *wire.RegisterRequest) (*wire.RegisterResponse, error) {
	reply, err := s.store.Register(ctx, r, s.cfg.Valid)
	if err != nil {
		return nil, fmt.Errorf("register session of %s: %w", r.Name, err)
	}
	s.log.Info("session registered", slog.Int64("session", int64(reply.Session)), slog.String("dataplane", r.Name))
	return reply, nil
}

// maxChanges bounds the changes in one renewal.
const maxChanges = 500

// Renew extends a session.
func (s *Service) Renew(ctx context.Context, r *wire.HeartbeatRequest) (*wire.HeartbeatResponse, error) {
	reply, err := s.store.Renew(ctx, r, s.cfg.Valid, maxChanges)
	if err != nil {
		return nil, fmt.Errorf("renew session %d: %w", r.Session, err)
	}
	return reply, nil
}

// Close ends a session when its events are settled.
func (s *Service) Close(ctx context.Context, r *wire.CloseRequest) (*wire.CloseResponse, error) {
	closed, err := s.store.Close(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("close session %d: %w", r.Session, err)
	}
	if !closed {
		return &wire.CloseResponse{V: wire.Version, Status: wire.Wait}, nil
	}
	s.log.Info("session closed", slog.Int64("session", int64(r.Session)), slog.Int64("events", r.FinalCount))
	return &wire.CloseResponse{V: wire.Version, Status: wire.Done}, nil
}

func (s *Service) sweeps(ctx context.Context) {
	ticker := time.NewTicker(sweepPause)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		fenced, closed, err := s.store.Sweep(ctx, s.cfg.margin(), s.cfg.Rest)
		if err != nil && ctx.Err() == nil {
			s.log.Error("sweep sessions", slog.Any("error", err))
		}
		if fenced+closed > 0 {
			s.log.Warn("sessions ended without a word", slog.Int("fenced", fenced), slog.Int("closed", closed))
		}
	}
}
