// Package outbox publishes catalog changes from the database to the KV bucket that proxies watch.
// Entries are written in the transaction of the change and published afterwards: in order, at
// least once, by one replica at a time. Each entry is complete, so publishing it twice has no
// effect. The bucket rejects a replica that was paused while another one took over, because it
// would overwrite newer entries with older ones.
//
// The publisher also restores the bucket if it has lost entries or was created again.
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
	"modelgateway/shared/platform/retry"
	"modelgateway/shared/subject"
)

// Store stores entries until they are published.
type Store interface {
	// Drain calls publish with the oldest entries, if there are any, and deletes them if publish succeeds. Only one
	// replica at a time may publish: if another one is publishing, leads is false and Drain does nothing.
	Drain(ctx context.Context, publish func(context.Context, []catalog.Entry) error) (found int, leads bool, err error)
	// Age returns the age of the oldest entry.
	Age(ctx context.Context) (time.Duration, error)
	// Wait returns when there are entries to publish, or after atMost.
	Wait(ctx context.Context, atMost time.Duration) error
}

// ErrOvertaken is returned if another replica has changed the bucket meanwhile.
var ErrOvertaken = errors.New("outbox: the bucket was changed by another replica")

// Bucket is the KV bucket from which proxies read the catalog.
type Bucket interface {
	// Position returns the number of changes of the bucket.
	Position(ctx context.Context) (uint64, error)
	// Put writes an entry, or deletes it if it has no payload, and returns the new position. It returns ErrOvertaken
	// and does nothing unless the bucket is at the given position.
	Put(ctx context.Context, entry catalog.Entry, at uint64) (uint64, error)
	// Get returns an entry's payload; nil if the entry does not exist.
	Get(ctx context.Context, key string) ([]byte, error)
	Keys(ctx context.Context) ([]string, error)
}

// SnapshotFunc returns all entries of the catalog, without the head, and the catalog's revision.
type SnapshotFunc func(ctx context.Context) ([]catalog.Entry, int64, error)

const (
	// checkEvery is the interval at which an idle publisher compares the bucket with the database.
	checkEvery = 15 * time.Second
	// retryPause is the delay after an error.
	retryPause = time.Second
)

// Publisher publishes entries until it is stopped.
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

// New returns a Publisher that is not started.
func New(store Store, bucket Bucket, snapshot SnapshotFunc, log *slog.Logger, reg prometheus.Registerer) *Publisher {
	with := promauto.With(reg)
	return &Publisher{
		store:    store,
		bucket:   bucket,
		snapshot: snapshot,
		log:      log,
		metrics: &metrics{
			published: with.NewCounter(prometheus.CounterOpts{Name: "mgw_outbox_published_total", Help: "Catalog entries published."}),
			republished: with.NewCounter(
				prometheus.CounterOpts{Name: "mgw_outbox_republished_total", Help: "Restorations of the whole catalog bucket."},
			),
			failures: with.NewCounter(
				prometheus.CounterOpts{Name: "mgw_outbox_failures_total", Help: "Failed attempts to publish catalog entries."},
			),
			age: with.NewGauge(
				prometheus.GaugeOpts{
					Name: "mgw_outbox_oldest_age_seconds",
					Help: "Age in seconds of the oldest unpublished catalog entry.",
				},
			),
		},
	}
}

// Start starts the publisher.
func (p *Publisher) Start(ctx context.Context) {
	ctx, p.stop = context.WithCancel(context.WithoutCancel(ctx))
	p.done.Go(func() { p.run(ctx) })
}

// Stop stops the publisher and waits.
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
			p.log.WarnContext(ctx, "publishing the outbox failed", "error", err)
			retry.Sleep(ctx, retryPause)
		}
	}
}

// Step publishes the waiting entries, or checks the bucket if there are none. again reports that
// there may be more entries.
func (p *Publisher) Step(ctx context.Context) (again bool, err error) {
	// Read before the entries: a later publication by another replica changes this position.
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
		retry.Sleep(ctx, retryPause) // another replica is publishing
		return false, nil
	}

	age, err := p.store.Age(ctx)
	if err != nil {
		return false, err
	}

	p.metrics.age.Set(age.Seconds())
	return found > 0, nil
}

// publish writes entries to a bucket at the given position.
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

// repair publishes the whole catalog if the bucket's head differs from the database's, or if it was
// sealed with another fleet key. The outbox is empty, so the heads differ only if the bucket has
// lost entries, or in a new installation: it gets the head of an empty catalog, because proxies are
// not ready before they have one.
func (p *Publisher) repair(ctx context.Context, position uint64) error {
	entries, rev, err := p.snapshot(ctx)
	if err != nil {
		return fmt.Errorf("outbox: read the catalog: %w", err)
	}

	published, found, err := p.head(ctx)
	if err != nil {
		return err
	}

	if found && published == rev {
		if same, err := p.sameFleetKey(ctx, entries); err != nil || same {
			return err
		}
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

	if rev == 0 {
		p.log.InfoContext(ctx, "empty catalog published, because none has been applied yet")
		return nil
	}

	p.metrics.republished.Inc()
	p.log.InfoContext(ctx, "catalog bucket restored", "rev", rev, "found_rev", published, "entries", len(entries))
	return nil
}

// sealedWith decodes the member of a provider's entry that names the fleet key; "" for other entries.
func sealedWith(payload []byte) string {
	var entry struct {
		FleetKey string `json:"fleet_key"`
	}
	if err := json.Unmarshal(payload, &entry); err != nil {
		return ""
	}
	return entry.FleetKey
}

// sameFleetKey reports whether the bucket's credentials are sealed with this replica's fleet key.
// Replicas with different keys overwrite each other's entries; proxies have both keys meanwhile.
func (p *Publisher) sameFleetKey(ctx context.Context, entries []catalog.Entry) (bool, error) {
	for _, e := range entries {
		wanted := sealedWith(e.Payload)
		if wanted == "" {
			continue
		}
		stored, err := p.bucket.Get(ctx, e.Subject)
		if err != nil {
			return false, fmt.Errorf("outbox: read %s: %w", e.Subject, err)
		}
		if sealedWith(stored) != wanted {
			return false, nil
		}
	}
	return true, nil
}

// head returns the revision of the bucket, and whether the bucket has one.
func (p *Publisher) head(ctx context.Context) (rev int64, found bool, err error) {
	text, err := p.bucket.Get(ctx, subject.CatalogHead)
	if err != nil || text == nil {
		return 0, false, err
	}
	var head catalogkv.Head
	if err := json.Unmarshal(text, &head); err != nil {
		return 0, false, nil //nolint:nilerr // an invalid head is treated as a missing one: repair replaces it
	}
	return head.Rev, true, nil
}
