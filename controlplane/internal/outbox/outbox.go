// Package outbox owns the way of a catalog change from the database to the
// bucket that proxies watch. Entries are written in the transaction of the
// change and published after it: in order, at least once, by one replica at a
// time. Each is whole by itself, so that publishing twice does no harm. A
// replica that stood still while another took its place is refused by the
// bucket: it would put older entries over newer ones.
//
// It also makes the bucket whole again when it has lost entries or was made
// anew.
package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"modelgateway/controlplane/internal/catalog"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/platform/sleep"
	"modelgateway/shared/subject"
)

// Store keeps entries until they are published.
type Store interface {
	// Drain gives publish the oldest entries, none if there are none, and removes them if it succeeds. One replica at
	// a time is in it: leads is false, and nothing was done, while another one is.
	Drain(ctx context.Context, publish func(context.Context, []catalog.Entry) error) (found int, leads bool, err error)
	// Age is how long the oldest entry has waited.
	Age(ctx context.Context) (time.Duration, error)
	// Wait returns when entries wait to be published, or after atMost.
	Wait(ctx context.Context, atMost time.Duration) error
}

// ErrOvertaken says that the bucket was changed by another replica meanwhile.
var ErrOvertaken = errors.New("outbox: the bucket was changed by another replica")

// Bucket is where proxies read the catalog.
type Bucket interface {
	// Position counts the changes of the bucket.
	Position(ctx context.Context) (uint64, error)
	// Put writes an entry, or deletes one without a payload, and returns the position after that. It is ErrOvertaken,
	// and does nothing, unless the bucket is at the given position.
	Put(ctx context.Context, entry catalog.Entry, at uint64) (uint64, error)
	// Get returns nil for an entry that is not there.
	Get(ctx context.Context, key string) ([]byte, error)
	Keys(ctx context.Context) ([]string, error)
}

// SnapshotFunc reads every entry of the catalog, without the head, and the
// catalog's revision.
type SnapshotFunc func(ctx context.Context) ([]catalog.Entry, int64, error)

const (
	// checkEvery is how often an idle publisher looks whether the bucket is whole.
	checkEvery = 15 * time.Second
	// retryPause is the time after a failure.
	retryPause = time.Second
)

// Publisher publishes until it is stopped.
type Publisher struct {
	store    Store
	bucket   Bucket
	snapshot SnapshotFunc
	log      *slog.Logger
	metrics  *metrics

	stop context.CancelFunc
	done sync.WaitGroup
}

type metrics struct {
	published, republished, failures prometheus.Counter
	age                              prometheus.Gauge
}

// New returns a Publisher that is not yet started.
func New(store Store, bucket Bucket, snapshot SnapshotFunc, log *slog.Logger, reg prometheus.Registerer) *Publisher {
	with := promauto.With(reg)
	return &Publisher{
		store: store, bucket: bucket, snapshot: snapshot, log: log,
		metrics: &metrics{
			published:   with.NewCounter(prometheus.CounterOpts{Name: "mgw_outbox_published_total", Help: "Catalog entries published."}),
			republished: with.NewCounter(prometheus.CounterOpts{Name: "mgw_outbox_republished_total", Help: "Times that the whole catalog was published again."}),
			failures:    with.NewCounter(prometheus.CounterOpts{Name: "mgw_outbox_failures_total", Help: "Failed attempts to publish."}),
			age:         with.NewGauge(prometheus.GaugeOpts{Name: "mgw_outbox_oldest_age_seconds", Help: "How long the oldest unpublished entry has waited."}),
		},
	}
}

// Start begins to publish.
func (p *Publisher) Start(ctx context.Context) {
	ctx, p.stop = context.WithCancel(context.WithoutCancel(ctx))
	p.done.Go(func() { p.run(ctx) })
}

// Stop ends publishing and waits for it.
func (p *Publisher) Stop() {
	p.stop()
	p.done.Wait()
}

func (p *Publisher) run(ctx context.Context) {
	for ctx.Err() == nil {
		again, err := p.Step(ctx)
		if err == nil && !again {
			err = p.store.Wait(ctx, checkEvery)
		}
		if err != nil && ctx.Err() == nil {
			p.metrics.failures.Inc()
			p.log.WarnContext(ctx, "outbox", "error", err)
			sleep.For(ctx, retryPause)
		}
	}
}

// Step publishes what waits, or, when nothing does, looks whether the bucket
// is whole. Again tells that there may be more to publish.
func (p *Publisher) Step(ctx context.Context) (again bool, err error) {
	// Read before the entries: whatever another replica publishes after they were read is after this.
	position, err := p.bucket.Position(ctx)
	if err != nil {
		return false, fmt.Errorf("outbox: %w", err)
	}
	found, leads, err := p.store.Drain(ctx, func(ctx context.Context, entries []catalog.Entry) error {
		if len(entries) == 0 {
			return p.repair(ctx, position)
		}
		return p.publish(ctx, entries, position)
	})
	if errors.Is(err, ErrOvertaken) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if !leads {
		sleep.For(ctx, retryPause) // the other replica is at it
		return false, nil
	}
	age, err := p.store.Age(ctx)
	if err != nil {
		return false, err
	}
	p.metrics.age.Set(age.Seconds())
	return found > 0, nil
}

// publish puts entries into the bucket, which is at a position.
func (p *Publisher) publish(ctx context.Context, entries []catalog.Entry, position uint64) error {
	for _, e := range entries {
		var err error
		if position, err = p.bucket.Put(ctx, e, position); err != nil {
			return fmt.Errorf("outbox: publish %s: %w", e.Subject, err)
		}
		p.metrics.published.Inc()
	}
	return nil
}

// repair publishes the whole catalog if the bucket's head is not the
// database's. The outbox is empty, so they differ only if the bucket has lost
// something.
func (p *Publisher) repair(ctx context.Context, position uint64) error {
	entries, rev, err := p.snapshot(ctx)
	if err != nil {
		return fmt.Errorf("outbox: read the catalog: %w", err)
	}
	published, err := p.head(ctx)
	if err != nil || published == rev {
		return err
	}
	stale, err := p.bucket.Keys(ctx)
	if err != nil {
		return fmt.Errorf("outbox: list the bucket: %w", err)
	}
	wanted := map[string]bool{subject.CatalogHead: true}
	for _, e := range entries {
		wanted[e.Subject] = true
	}
	for _, key := range stale {
		if !wanted[key] {
			entries = append(entries, catalog.Entry{Subject: key})
		}
	}
	head, err := json.Marshal(catalogkv.Head{V: 1, Rev: rev})
	if err != nil {
		return fmt.Errorf("outbox: encode head: %w", err)
	}
	if err := p.publish(ctx, append(entries, catalog.Entry{Subject: subject.CatalogHead, Payload: head}), position); err != nil {
		return err
	}
	p.metrics.republished.Inc()
	p.log.InfoContext(ctx, "catalog published whole", "rev", rev, "found_rev", published, "entries", len(entries))
	return nil
}

// head reads the revision that the bucket holds; zero if it is empty.
func (p *Publisher) head(ctx context.Context) (int64, error) {
	text, err := p.bucket.Get(ctx, subject.CatalogHead)
	if err != nil || text == nil {
		return 0, err
	}
	var head catalogkv.Head
	if err := json.Unmarshal(text, &head); err != nil {
		return 0, nil //nolint:nilerr // a head that nobody can read is as good as none
	}
	return head.Rev, nil
}
