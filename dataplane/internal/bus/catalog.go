package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"modelgateway/shared/subject"
)

// Catalog takes in the entries of the bucket. A nil value deletes. Applied is
// called when what was set forms a whole: after the first load, and after each
// head.
type Catalog interface {
	Set(kind, name string, value []byte)
	Apply() error
	// Restart forgets what is not applied, and everything that the load to come does not set again.
	Restart()
}

// watchRetry is the pause before a watch that failed is begun anew.
const watchRetry = time.Second

// WatchCatalog keeps a Catalog in step with the bucket until ctx ends: the
// whole bucket first, then change by change. When the watch breaks, it begins
// anew with the whole bucket.
func (b *Bus) WatchCatalog(ctx context.Context, c Catalog) {
	for ctx.Err() == nil {
		if err := b.watchCatalog(ctx, c); err != nil && ctx.Err() == nil {
			b.log.Warn("watch catalog", slog.Any("error", err))
			timer := time.NewTimer(watchRetry)
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
			timer.Stop()
		}
	}
}

func (b *Bus) watchCatalog(ctx context.Context, c Catalog) error {
	kv, err := b.js.KeyValue(ctx, subject.CatalogBucket)
	if err != nil {
		return fmt.Errorf("bus: open catalog bucket: %w", err)
	}
	watcher, err := kv.WatchAll(ctx)
	if err != nil {
		return fmt.Errorf("bus: watch catalog: %w", err)
	}
	defer func() { _ = watcher.Stop() }()
	c.Restart()
	loaded := false
	for {
		var entry jetstream.KeyValueEntry
		var open bool
		select {
		case <-ctx.Done():
			return nil
		case entry, open = <-watcher.Updates():
		}
		if !open {
			return errors.New("bus: the catalog watch ended")
		}
		if entry == nil { // the end of what the bucket held
			loaded = true
			if err := c.Apply(); err != nil {
				b.log.Error("apply catalog", slog.Any("error", err))
			}
			continue
		}
		set(c, entry)
		if loaded && entry.Key() == subject.CatalogHead {
			if err := c.Apply(); err != nil {
				b.log.Error("apply catalog", slog.Any("error", err))
			}
		}
	}
}

func set(c Catalog, entry jetstream.KeyValueEntry) {
	kind, name, ok := subject.ParseEntry(entry.Key())
	if !ok {
		kind, name = entry.Key(), ""
	}
	if entry.Operation() != jetstream.KeyValuePut {
		c.Set(kind, name, nil)
		return
	}
	c.Set(kind, name, entry.Value())
}
