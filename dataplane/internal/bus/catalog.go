package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"modelgateway/dataplane/internal/logdedup"
	"modelgateway/shared/platform/sleep"
	"modelgateway/shared/subject"
)

// Catalog takes in the entries of the bucket. A nil value deletes. Applied is
// called when what was set forms a whole: after the first load, and after each
// head.
type Catalog interface {
	Set(kind, name string, value []byte)
	Apply() error
	// Restart forgets what is not applied, and everything that the load to come does not set again.
	BeginReload()
}

const (
	// watchRetry is the pause before a watch that failed is begun anew.
	watchRetryInterval = time.Second
	// bucketCheck is the pause between two looks whether the bucket is still the one that is watched: the watch of one
	// that was deleted just stays silent.
	bucketCheckInterval = 5 * time.Second
)

// WatchCatalog keeps a Catalog in step with the bucket until ctx ends: the
// whole bucket first, then change by change. When the watch breaks, it begins
// anew with the whole bucket.
func (b *Bus) WatchCatalog(ctx context.Context, c Catalog) {
	var trouble logdedup.Filter
	for ctx.Err() == nil {
		if err := b.watchCatalog(ctx, c); err != nil && ctx.Err() == nil {
			if trouble.IsNew(err) {
				b.log.Warn("watch catalog", slog.Any("error", err))
			}
			sleep.For(ctx, watchRetryInterval)
		}
	}
}

func (b *Bus) watchCatalog(ctx context.Context, c Catalog) error {
	kv, err := b.js.KeyValue(ctx, subject.CatalogBucket)
	if err != nil {
		return fmt.Errorf("bus: open catalog bucket: %w", err)
	}
	connected := b.nc.StatusChanged(nats.CONNECTED)
	defer b.nc.RemoveStatusListener(connected)
	made, err := bucketCreatedAt(ctx, kv)
	if err != nil {
		return fmt.Errorf("bus: look at catalog bucket: %w", err)
	}
	watcher, err := kv.WatchAll(ctx)
	if err != nil {
		return fmt.Errorf("bus: watch catalog: %w", err)
	}
	defer func() { _ = watcher.Stop() }()
	check := time.NewTicker(b.bucketCheckInterval)
	defer check.Stop()
	c.BeginReload()
	loaded := false
	// head and last are the revisions in the bucket of the head and of any entry.
	var head, last uint64
	for {
		var entry jetstream.KeyValueEntry
		var open bool
		select {
		case <-ctx.Done():
			return nil
		case <-connected: // a server that was restarted has forgotten the watch, and the client finds out late
			return errors.New("bus: connected anew")
		case <-check.C:
			if now, err := bucketCreatedAt(ctx, kv); errors.Is(err, jetstream.ErrStreamNotFound) || (err == nil && !now.Equal(made)) {
				return errors.New("bus: the catalog bucket was deleted or made anew")
			}
			continue
		case entry, open = <-watcher.Updates():
		}
		if !open {
			return errors.New("bus: the catalog watch ended")
		}
		if entry == nil { // the end of what the bucket held
			loaded = true
		} else {
			set(c, entry)
			if last = max(last, entry.Revision()); entry.Key() == subject.CatalogHead {
				head = entry.Revision()
			}
		}
		// An entry after the last head belongs to a change that is still being written.
		if loaded && head == last {
			if err := c.Apply(); err != nil {
				b.log.Error("apply catalog", slog.Any("error", err))
			}
		}
	}
}

// madeAt is when the bucket was made.
func bucketCreatedAt(ctx context.Context, kv jetstream.KeyValue) (time.Time, error) {
	status, err := kv.Status(ctx)
	if err != nil {
		return time.Time{}, err //nolint:wrapcheck // done by who asks
	}
	bucket, ok := status.(*jetstream.KeyValueBucketStatus)
	if !ok {
		return time.Time{}, fmt.Errorf("a bucket of kind %T", status)
	}
	return bucket.StreamInfo().Created, nil
}

func set(c Catalog, entry jetstream.KeyValueEntry) {
	kind, name, ok := subject.ParseCatalogKey(entry.Key())
	if !ok {
		kind, name = entry.Key(), ""
	}
	if entry.Operation() != jetstream.KeyValuePut {
		c.Set(kind, name, nil)
		return
	}
	c.Set(kind, name, entry.Value())
}
