// Package epoch owns the case that Postgres has lost commits: it was restored
// from an older copy, or failed over to a standby that lacked some.
//
// The control planes keep a mark of how far Postgres has come outside of it, on
// the bus, and compare: before they serve anything, with every new connection,
// and all the time. Whoever finds Postgres behind the mark declares the loss in
// one transaction: the next epoch begins, with revisions and ids that nobody
// has seen; every session is over; revocations are made again; nothing is
// granted until no proxy can admit by what was lost; usage is settled once
// more from the stream, and published once more from the spools.
package epoch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"modelgateway/shared/apikey"
	"modelgateway/shared/lease"
)

// ErrLost says that Postgres lacks commits that were seen.
var ErrLost = errors.New("epoch: postgres has lost commits")

// Store is Postgres as far as epochs go.
type Store interface {
	// Expect has connections to a Postgres that stands behind a mark refused.
	Expect(mark lease.Mark)
	// Beat counts up and returns how far Postgres has come; ErrLost if it was refused.
	Beat(ctx context.Context) (lease.Mark, error)
	// Declare begins the next epoch, unless another control plane has; with force in any case.
	Declare(ctx context.Context, seen lease.Mark, force bool, valid time.Duration, revoked []apikey.Hash) (lease.Mark, error)
}

// Anchor is what outlives a loss in Postgres.
type Anchor interface {
	// Mark returns the zero Mark if there is none.
	Mark(ctx context.Context) (lease.Mark, error)
	// PutMark keeps the later one of the mark that it has and this one.
	PutMark(ctx context.Context, mark lease.Mark) error
	// RevokedKeys lists the keys whose revocation was ever to be confirmed.
	RevokedKeys(ctx context.Context) ([]apikey.Hash, error)
}

// Keeper compares. Start it before anything else uses Postgres.
type Keeper struct {
	store  Store
	anchor Anchor
	valid  time.Duration
	// onEpoch is told of the epoch at every look.
	onEpoch func(int64)
	log     *slog.Logger
	epoch   prometheus.Gauge
	losses  prometheus.Counter
	mark    lease.Mark

	stop context.CancelFunc
	done sync.WaitGroup
}

// New returns a Keeper that is not started; valid is the length of sessions.
func New(store Store, anchor Anchor, valid time.Duration, onEpoch func(int64), log *slog.Logger, reg prometheus.Registerer) *Keeper {
	with := promauto.With(reg)
	return &Keeper{
		store: store, anchor: anchor, valid: valid, onEpoch: onEpoch, log: log,
		epoch:  with.NewGauge(prometheus.GaugeOpts{Name: "mgw_cluster_epoch", Help: "How often Postgres has lost commits, plus one."}),
		losses: with.NewCounter(prometheus.CounterOpts{Name: "mgw_cluster_losses_total", Help: "Losses of commits that this replica has declared."}),
	}
}

// every is the time between two looks; timeout bounds one.
const (
	every   = time.Second
	timeout = 10 * time.Second
)

// Start looks once and, if Postgres is sound or its loss declared, goes on
// looking until Stop.
func (k *Keeper) Start(ctx context.Context) error {
	if err := k.Look(ctx); err != nil {
		return err
	}
	ctx, k.stop = context.WithCancel(context.WithoutCancel(ctx))
	k.done.Go(func() {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			if err := k.Look(ctx); err != nil && ctx.Err() == nil {
				k.log.WarnContext(ctx, "compare postgres with its mark", "error", err)
			}
		}
	})
	return nil
}

// Stop ends looking.
func (k *Keeper) Stop() {
	if k.stop != nil {
		k.stop()
	}
	k.done.Wait()
}

// Look compares once, and declares a loss if it finds one. It is not safe for
// concurrent use.
func (k *Keeper) Look(ctx context.Context) error { return k.look(ctx, false) }

// Declare declares a loss by hand, for one that no mark can show.
func (k *Keeper) Declare(ctx context.Context) error { return k.look(ctx, true) }

func (k *Keeper) look(ctx context.Context, force bool) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	seen, err := k.anchor.Mark(ctx)
	if err != nil {
		return fmt.Errorf("epoch: read mark: %w", err)
	}
	k.mark = k.mark.Merge(seen)
	k.store.Expect(k.mark)
	now, err := k.store.Beat(ctx)
	if err != nil && !errors.Is(err, ErrLost) {
		return fmt.Errorf("epoch: %w", err)
	}
	if force || err != nil || k.mark.Lost(now) {
		if now, err = k.declare(ctx, force); err != nil {
			return err
		}
	}
	k.mark = k.mark.Merge(now)
	k.store.Expect(k.mark)
	k.epoch.Set(float64(k.mark.Epoch))
	k.onEpoch(k.mark.Epoch)
	if err := k.anchor.PutMark(ctx, k.mark); err != nil {
		return fmt.Errorf("epoch: keep mark: %w", err)
	}
	return nil
}

func (k *Keeper) declare(ctx context.Context, force bool) (lease.Mark, error) {
	revoked, err := k.anchor.RevokedKeys(ctx)
	if err != nil {
		return lease.Mark{}, fmt.Errorf("epoch: read revocations: %w", err)
	}
	now, err := k.store.Declare(ctx, k.mark, force, k.valid, revoked)
	if err != nil {
		return lease.Mark{}, fmt.Errorf("epoch: declare: %w", err)
	}
	k.losses.Inc()
	k.log.ErrorContext(ctx, "postgres has lost commits: a new epoch begins, and nothing is granted until every session from before is over",
		"epoch", now.Epoch, "rev", now.Rev, "revocations_kept", len(revoked))
	return now, nil
}
