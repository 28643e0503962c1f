package app

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"modelgateway/controlplane/internal/bus"
	"modelgateway/controlplane/internal/changestream"
	"modelgateway/controlplane/internal/config"
	"modelgateway/controlplane/internal/keybucket"
	"modelgateway/controlplane/internal/leasing"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/moneystore"
	"modelgateway/controlplane/internal/postgres/videostore"
	"modelgateway/controlplane/internal/recovery"
	"modelgateway/controlplane/internal/settle"
	"modelgateway/controlplane/internal/videojob"
	"modelgateway/shared/lease/rollback"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/platform/traces"
)

// newSettler returns a settler that checks costs and leases.
func newSettler(db *postgres.DB) *settle.Settler {
	store := moneystore.NewSettlement(db)
	return settle.New(store, store)
}

// buildProxySide connects to NATS and adds the components that serve the proxies: leases and
// sessions, video jobs, and settlement.
func (a *app) buildProxySide(context.Context) error {
	b, err := bus.Connect(busConfig(&a.cfg, "controlplane "+a.version), leasestore.NewRecovery(a.db), a.log)
	if err != nil {
		return err
	}

	a.bus = b
	a.closers = append(a.closers, b.Close)
	a.probes.Add("nats", b.Ready)
	registerNATS(a.registry, b)
	registerCertificates(a.registry, &a.cfg, b)

	a.epochs = recovery.New(recovery.Config{
		ID:             a.replica,
		Store:          leasestore.NewRecovery(a.db, a.adminDB),
		Bucket:         b,
		Window:         a.cfg.Session.Window,
		Keeps:          rollback.Keeps(a.cfg.Postgres.KeepsCommits),
		OnEpoch:        b.SetClusterEpoch,
		EpochConfirmed: func(epoch int64) bool { return a.changes.ConfirmedEpoch(epoch) },
		Log:            a.log,
		Registerer:     a.registry,
	})
	a.probes.Add("epoch", a.epochs.Ready)
	a.components.Add("epoch", a.epochs.Start, func(ctx context.Context) error { a.epochs.Stop(ctx); return nil })
	store, times := leasestore.NewLeases(a.db), sessions(&a.cfg)
	a.waiting = store.Waiting()
	a.changes = changestream.New(store, b, a.cfg.Session.Window, session.Margin, a.log, a.registry)
	times.Append, times.Changes = a.changes.Append, b
	a.leasing = leasing.New(times, store, b, a.log, a.registry)
	a.components.Add("leasing",
		func(ctx context.Context) error { a.leasing.Start(context.WithoutCancel(ctx)); return nil },
		func(context.Context) error { a.leasing.Stop(); return nil })

	spans, err := a.openTraces()
	if err != nil {
		return err
	}

	settler := newSettler(a.db)
	videos := videojob.New(videostore.New(a.db), b, b, a.log)
	a.components.Add("bus",
		func(ctx context.Context) error {
			if err := b.Declare(ctx); err != nil {
				return err
			}
			if err := a.changes.Begin(ctx); err != nil {
				return err
			}
			if err := b.Serve(a.leasing); err != nil {
				return err
			}
			if err := b.ServeVideos(videos); err != nil {
				return err
			}
			if err := b.ServeTraffic(a.traffic.Receive); err != nil {
				return err
			}

			b.ConsumeUsage(settler, a.registry, spans)
			return nil
		},
		func(context.Context) error { b.Stop(); return nil })

	a.components.AddTask("changes", a.changes.Run)
	// Its queries are among those of jobs, which delay no request of a proxy.
	a.components.AddTask("key records", keybucket.New(leasestore.NewLeases(a.adminDB), b, a.log, a.registry).Run)

	a.components.Add("video jobs",
		func(ctx context.Context) error { videos.Start(ctx); return nil },
		func(context.Context) error { videos.Stop(); return nil })

	return nil
}

// openTraces returns the tracer of settlements; nil without a collector. The last spans are exported when settlement has stopped.
func (a *app) openTraces() (trace.Tracer, error) {
	if a.cfg.Tracing.Endpoint == "" {
		return nil, nil //nolint:nilnil // an absent tracer is valid
	}

	exporter, err := traces.Open(context.Background(), traces.Config{
		Endpoint: a.cfg.Tracing.Endpoint,
		Service:  "modelgateway-controlplane",
		Version:  a.version,
		Instance: a.replica,
		Log:      a.log,
	})
	if err != nil {
		return nil, err
	}

	a.components.Add("traces", nil, func(ctx context.Context) error {
		if err := exporter.Close(ctx); err != nil {
			a.log.WarnContext(ctx, "the last traces were not exported", "error", err)
		}
		return nil
	})

	return exporter.Tracer("modelgateway/controlplane"), nil
}

// sessions returns the times of the protocol.
func sessions(cfg *config.Config) leasing.Config {
	return leasing.Config{Window: cfg.Session.Window}
}
