package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"modelgateway/shared/platform/retry"
	"modelgateway/shared/subject"
)

// Catalog gets the entries of the catalog bucket.
type Catalog interface {
	// Set sets an entry. A nil value deletes it.
	Set(kind, name string, value []byte)
	// Apply is called when the entries that were set are complete: after the first load and after each head.
	Apply() error
	// BeginReload is called before the whole bucket is loaded. Entries that were set and not applied are dropped; at the
	// next Apply, so are those that were not set again.
	BeginReload()
}

const (
	// watchRetryInterval is the delay before a failed watch is started again.
	watchRetryInterval = time.Second
	// bucketCheckInterval is how often the identity of the watched bucket is checked: the watch of a deleted bucket reports
	// no error.
	bucketCheckInterval = 5 * time.Second
)

// WatchCatalog loads the catalog bucket and then passes on each change of it until
// ctx ends. If the watch fails, it loads the whole bucket again.
func (b *Bus) WatchCatalog(ctx context.Context, c Catalog) {
	var repeatedErrors retry.ErrorFilter
	for ctx.Err() == nil {
		if err := b.watchCatalog(ctx, c); err != nil && ctx.Err() == nil {
			if repeatedErrors.IsNew(err) {
				b.log.Warn("watch of the catalog bucket failed", slog.Any("error", err))
			}
			retry.Sleep(ctx, watchRetryInterval)
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
	created, err := bucketCreatedAt(ctx, kv)
	if err != nil {
		return fmt.Errorf("bus: read state of catalog bucket: %w", err)
	}

	watcher, err := kv.WatchAll(ctx)
	if err != nil {
		return fmt.Errorf("bus: watch catalog bucket: %w", err)
	}
	defer func() { _ = watcher.Stop() }()
	check := time.NewTicker(b.bucketCheckInterval)
	defer check.Stop()
	c.BeginReload()
	loaded := false

	// head is the bucket's revision of the head entry, last that of the newest entry.
	var head, last uint64
	for {
		var entry jetstream.KeyValueEntry
		var open bool
		select {
		case <-ctx.Done():
			return nil
		case <-connected: // a restarted server does not know the watch any more, and the client notices late
			return errors.New("bus: the connection was interrupted")
		case <-check.C:
			if now, err := bucketCreatedAt(ctx, kv); errors.Is(err, jetstream.ErrStreamNotFound) || (err == nil && !now.Equal(created)) {
				return errors.New("bus: the catalog bucket was deleted or created again")
			}
			continue
		case entry, open = <-watcher.Updates():
		}

		if !open {
			return errors.New("bus: the catalog watch ended")
		}

		if entry == nil { // the whole bucket has been loaded
			loaded = true
		} else {
			set(c, entry)
			if last = max(last, entry.Revision()); entry.Key() == subject.CatalogHead {
				head = entry.Revision()
			}
		}

		// If the newest entry is not the head, a change is being written, and its head will follow.
		if loaded && head == last {
			if err := c.Apply(); err != nil {
				b.log.Error("catalog could not be applied completely", slog.Any("error", err))
			}
		}
	}
}

// bucketCreatedAt returns when the bucket was created.
func bucketCreatedAt(ctx context.Context, kv jetstream.KeyValue) (time.Time, error) {
	status, err := kv.Status(ctx)
	if err != nil {
		return time.Time{}, err //nolint:wrapcheck // the caller wraps it
	}
	bucket, ok := status.(*jetstream.KeyValueBucketStatus)
	if !ok {
		return time.Time{}, fmt.Errorf("unexpected type %T", status)
	}
	return bucket.StreamInfo().Created, nil
}

// set passes an entry on to the Catalog.
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
