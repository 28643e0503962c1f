package webhook

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/controlplane/adminclient/signature"
	"modelgateway/shared/ident"
)

// Queue stores events and deliveries.
type Queue interface {
	// FanOut claims events without deliveries, stores the body of each and creates its deliveries. It returns the
	// number of events; events that another replica has claimed are skipped.
	FanOut(ctx context.Context, limit int, body func(*Event, *Subject) ([]byte, error)) (int, error)
	// Claim claims due deliveries for a duration, at most perEndpoint of each endpoint.
	Claim(ctx context.Context, limit, perEndpoint int, duration time.Duration) ([]Claim, error)
	// Conclude stores the outcome of a claim, unless the delivery was claimed again meanwhile.
	Conclude(ctx context.Context, o *Outcome) error
	// Release ends a claim whose delivery was not attempted.
	Release(ctx context.Context, c *Claim) error
	// Backlog returns the pending deliveries and the endpoints.
	Backlog(ctx context.Context) (Backlog, error)
	// Expire deletes events older than age whose deliveries have all ended, and returns their number.
	Expire(ctx context.Context, age time.Duration) (int64, error)
}

// Backlog is the state of all endpoints.
type Backlog struct {
	// Pending is the number of pending deliveries of enabled endpoints, Oldest the age of the oldest of them.
	Pending int64
	Oldest  time.Duration
	// Endpoints are the numbers of endpoints by state: enabled, disabled (by an operator) or failed (disabled by the control plane,
	// because every delivery failed).
	Endpoints map[string]int64
}

// Sender attempts to deliver a message. It sets all fields of the Attempt but number and time.
type Sender interface {
	Send(ctx context.Context, m Message) Attempt
}

// DispatchConfig holds the dependencies and settings of a Dispatcher.
type DispatchConfig struct {
	Queue  Queue
	Sender Sender
	Vault  Vault
	Log    *slog.Logger
	// DisableAfter is how long an endpoint may fail before it is disabled; zero means five days.
	DisableAfter time.Duration
	// Every is the polling interval of an idle dispatcher; zero means one second.
	Every time.Duration
}

const (
	// workers bounds the concurrent attempts of a replica, perEndpoint those to one endpoint.
	workers     = 16
	perEndpoint = 4
	// claimDuration is longer than an attempt may take.
	claimDuration = time.Minute
	// countEvery is the interval between counts of the backlog. A count reads all pending deliveries.
	countEvery = 10 * time.Second
	// fanOutBatch bounds the events that are handled in one transaction.
	fanOutBatch = 100
	// retention is how long events and their deliveries are stored.
	retention = 30 * 24 * time.Hour
	// failurePause is the delay after an error of the queue.
	failurePause = time.Second
	// concludeTimeout bounds storing an outcome while the dispatcher stops.
	concludeTimeout = 5 * time.Second
)

// Dispatcher creates and attempts deliveries until it is stopped. Several replicas share the work.
type Dispatcher struct {
	cfg     DispatchConfig
	metrics *metrics
	stop    context.CancelFunc
	done    sync.WaitGroup
	// counted is the time of the last backlog count.
	counted time.Time
	// free holds a token for every attempt that may start; ended is signalled when an attempt ends.
	free  chan struct{}
	ended chan struct{}
}

// NewDispatcher returns a Dispatcher that is not yet started.
func NewDispatcher(cfg DispatchConfig, reg prometheus.Registerer) *Dispatcher {
	if cfg.DisableAfter == 0 {
		cfg.DisableAfter = 5 * 24 * time.Hour
	}
	if cfg.Every == 0 {
		cfg.Every = time.Second
	}

	d := &Dispatcher{
		cfg:     cfg,
		metrics: newMetrics(reg),
		free:    make(chan struct{}, workers),
		ended:   make(chan struct{}, 1),
	}

	for range workers {
		d.free <- struct{}{}
	}

	return d
}

// Start starts the dispatcher.
func (d *Dispatcher) Start(ctx context.Context) {
	ctx, d.stop = context.WithCancel(context.WithoutCancel(ctx))
	d.done.Go(func() { d.run(ctx) })
}

// Stop cancels running attempts, releases their claims and waits.
func (d *Dispatcher) Stop() {
	d.stop()
	d.done.Wait()
}

func (d *Dispatcher) run(ctx context.Context) {
	for ctx.Err() == nil {
		pause := d.cfg.Every
		again, err := d.step(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			d.cfg.Log.WarnContext(ctx, "webhook dispatch failed", "error", err)
			pause = max(pause, failurePause)
		case again:
			continue
		}

		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-d.ended: // a worker is free
		}

		timer.Stop()
	}
}

// step creates the deliveries of new events and starts due deliveries. again reports that there
// are more new events.
func (d *Dispatcher) step(ctx context.Context) (again bool, err error) {
	found, err := d.cfg.Queue.FanOut(ctx, fanOutBatch, (*Event).Body)
	if err != nil {
		return false, fmt.Errorf("fan out events: %w", err)
	}

	if room := len(d.free); room > 0 {
		claims, err := d.cfg.Queue.Claim(ctx, room, perEndpoint, claimDuration)
		if err != nil {
			return false, fmt.Errorf("claim deliveries: %w", err)
		}
		for i := range claims {
			<-d.free
			d.done.Go(func() { d.deliver(ctx, &claims[i]) })
		}
	}

	if time.Since(d.counted) >= countEvery {
		backlog, err := d.cfg.Queue.Backlog(ctx)
		if err != nil {
			return false, fmt.Errorf("read backlog: %w", err)
		}
		d.counted = time.Now()
		d.metrics.backlog(&backlog)
	}

	return found == fanOutBatch, nil
}

func (d *Dispatcher) deliver(ctx context.Context, c *Claim) {
	defer func() {
		d.free <- struct{}{}
		select {
		case d.ended <- struct{}{}:
		default:
		}
	}()

	start := time.Now()
	attempt := d.attempt(ctx, c)
	attempt.At = start
	writing, cancel := context.WithTimeout(context.WithoutCancel(ctx), concludeTimeout)
	defer cancel()

	if ctx.Err() != nil && attempt.Error != "" { // cancelled by Stop: not a failure of the endpoint
		d.warn(d.cfg.Queue.Release(writing, c), c)
		return
	}

	d.metrics.attempted(&attempt)
	outcome := conclude(c, attempt, d.cfg.DisableAfter)
	d.warn(d.cfg.Queue.Conclude(writing, &outcome), c)

	if attempt.Error != "" {
		d.cfg.Log.InfoContext(ctx, "webhook delivery attempt failed", "delivery_id", c.Delivery, "endpoint_id", c.Endpoint,
			"class", attempt.Error, "status", attempt.Status, "state", outcome.State)
	}

	if outcome.Disable != "" {
		d.cfg.Log.WarnContext(ctx, "webhook endpoint disabled", "endpoint_id", c.Endpoint, "reason", outcome.Disable)
	}
}

// warn logs an outcome that could not be stored. The claim expires, and the event may be delivered
// twice.
func (d *Dispatcher) warn(err error, c *Claim) {
	if err != nil {
		d.cfg.Log.Warn("storing a webhook outcome failed", "delivery_id", c.Delivery, "error", err)
	}
}

func (d *Dispatcher) attempt(ctx context.Context, c *Claim) Attempt {
	secrets := make([]signature.Secret, 0, len(c.Secrets))
	for _, sealed := range c.Secrets {
		text, err := d.cfg.Vault.Open(sealed.Sealed, c.Endpoint.context())
		if err == nil {
			var secret signature.Secret
			if secret, err = signature.ParseSecret(string(text)); err == nil {
				secrets = append(secrets, secret)
			}
		}
		if err != nil {
			d.cfg.Log.ErrorContext(ctx, "decrypting a webhook secret failed", "endpoint_id", c.Endpoint, "error", err)
		}
	}

	if len(secrets) == 0 {
		return Attempt{Error: Undecryptable}
	}

	m := Message{URL: c.URL, Header: http.Header{}, Body: c.Body}
	signature.Sign(m.Header, ident.Event.Format(c.EventID), time.Now(), c.Body, secrets...)
	return d.cfg.Sender.Send(ctx, m)
}

// Expire deletes old events.
func (d *Dispatcher) Expire(ctx context.Context) error {
	_, err := d.cfg.Queue.Expire(ctx, retention)
	return err
}
