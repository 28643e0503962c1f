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

// Queue is where events wait, in Postgres.
type Queue interface {
	// LayOut takes events that have no body yet, has them given one, and makes their deliveries. It returns how many
	// there were; events that another replica holds are left to it.
	LayOut(ctx context.Context, limit int, body func(*Event, *Subject) ([]byte, error)) (int, error)
	// Claim takes deliveries that are due, no more than perEndpoint of one endpoint. Nobody else gets them for a time.
	Claim(ctx context.Context, limit, perEndpoint int, lease time.Duration) ([]Claim, error)
	// Conclude writes what became of a claim, unless it has passed to another.
	Conclude(ctx context.Context, o *Outcome) error
	// Release gives a claim back that was not tried.
	Release(ctx context.Context, c *Claim) error
	// Backlog is how many deliveries wait, and how long the oldest of them has been due.
	Backlog(ctx context.Context) (int64, time.Duration, error)
	// Expire removes events older than an age whose deliveries have all ended, and returns how many there were.
	Expire(ctx context.Context, age time.Duration) (int64, error)
}

// Sender makes one attempt to deliver a message. It sets all of the Attempt
// but its number and time.
type Sender interface {
	Send(ctx context.Context, m Message) Attempt
}

// DispatchConfig is what a Dispatcher is made of.
type DispatchConfig struct {
	Queue  Queue
	Sender Sender
	Vault  Vault
	Log    *slog.Logger
	// DisableAfter is how long an endpoint fails before it is turned off; zero means five days.
	DisableAfter time.Duration
	// Every is the pause of a dispatcher that has nothing to do; zero means one second.
	Every time.Duration
}

const (
	// workers is how many attempts a replica makes at once, perEndpoint how many of them to one endpoint.
	workers     = 16
	perEndpoint = 4
	// claimLease is for how long nobody else tries what a replica has claimed: longer than an attempt may take.
	claimLease = time.Minute
	// countEvery is how often the backlog is counted, which reads all of it.
	countEvery = 10 * time.Second
	// layOutBatch is how many events are laid out in one transaction.
	layOutBatch = 100
	// kept is how long events and their deliveries can be looked at.
	kept = 30 * 24 * time.Hour
	// failurePause is the time after a failure of the queue itself.
	failurePause = time.Second
	// concludeTimeout bounds the writing of an outcome while the dispatcher stops.
	concludeTimeout = 5 * time.Second
)

// Dispatcher lays events out and delivers them until it is stopped. Any number
// of them share the work.
type Dispatcher struct {
	cfg     DispatchConfig
	metrics *metrics
	stop    context.CancelFunc
	done    sync.WaitGroup
	// counted is when the backlog was last counted.
	counted time.Time
	// free holds a token for every attempt that may begin; ended tells that one has ended.
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
	d := &Dispatcher{cfg: cfg, metrics: newMetrics(reg), free: make(chan struct{}, workers), ended: make(chan struct{}, 1)}
	for range workers {
		d.free <- struct{}{}
	}
	return d
}

// Start begins to deliver.
func (d *Dispatcher) Start(ctx context.Context) {
	ctx, d.stop = context.WithCancel(context.WithoutCancel(ctx))
	d.done.Go(func() { d.run(ctx) })
}

// Stop ends delivering: attempts under way are broken off and given back.
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
			d.cfg.Log.WarnContext(ctx, "webhooks", "error", err)
			pause = max(pause, failurePause)
		case again:
			continue
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-d.ended: // there is room for more
		}
		timer.Stop()
	}
}

// step lays out what is new and begins to deliver what is due. Again tells
// that there is more to lay out.
func (d *Dispatcher) step(ctx context.Context) (again bool, err error) {
	found, err := d.cfg.Queue.LayOut(ctx, layOutBatch, (*Event).Body)
	if err != nil {
		return false, fmt.Errorf("lay out events: %w", err)
	}
	if room := len(d.free); room > 0 {
		claims, err := d.cfg.Queue.Claim(ctx, room, perEndpoint, claimLease)
		if err != nil {
			return false, fmt.Errorf("claim deliveries: %w", err)
		}
		for i := range claims {
			<-d.free
			d.done.Go(func() { d.deliver(ctx, &claims[i]) })
		}
	}
	if time.Since(d.counted) >= countEvery {
		count, age, err := d.cfg.Queue.Backlog(ctx)
		if err != nil {
			return false, fmt.Errorf("read backlog: %w", err)
		}
		d.counted = time.Now()
		d.metrics.backlog(count, age)
	}
	return found == layOutBatch, nil
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
	if ctx.Err() != nil && attempt.Error != "" { // we broke it off: the receiver is not to blame
		d.warn(d.cfg.Queue.Release(writing, c), c)
		return
	}
	d.metrics.attempted(&attempt)
	outcome := conclude(c, attempt, d.cfg.DisableAfter)
	d.warn(d.cfg.Queue.Conclude(writing, &outcome), c)
	if attempt.Error != "" {
		d.cfg.Log.InfoContext(ctx, "webhook not delivered", "delivery_id", c.Delivery, "endpoint_id", c.Endpoint,
			"class", attempt.Error, "status", attempt.Status, "state", outcome.State)
	}
	if outcome.Disable != "" {
		d.cfg.Log.WarnContext(ctx, "webhook endpoint disabled", "endpoint_id", c.Endpoint, "reason", outcome.Disable)
	}
}

// warn tells of an outcome that could not be written: the claim comes back by
// itself, and the event may be delivered twice.
func (d *Dispatcher) warn(err error, c *Claim) {
	if err != nil {
		d.cfg.Log.Warn("webhook outcome not kept", "delivery_id", c.Delivery, "error", err)
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
			d.cfg.Log.ErrorContext(ctx, "webhook secret", "endpoint_id", c.Endpoint, "error", err)
		}
	}
	if len(secrets) == 0 {
		return Attempt{Error: Unopened}
	}
	m := Message{URL: c.URL, Header: http.Header{}, Body: c.Body}
	signature.Sign(m.Header, ident.Event.Format(c.EventID), time.Now(), c.Body, secrets...)
	return d.cfg.Sender.Send(ctx, m)
}

// Expire removes events that nobody needs to look at any more.
func (d *Dispatcher) Expire(ctx context.Context) error {
	_, err := d.cfg.Queue.Expire(ctx, kept)
	return err
}
