package app

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/controlplane/internal/bus"
	"modelgateway/controlplane/internal/config"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/recovery"
	"modelgateway/shared/lease/rollback"
)

// DeclareLoss declares manually that Postgres has lost commits, for a loss that the control planes
// cannot detect. Running control planes notice the declaration and act on it.
func DeclareLoss(ctx context.Context, cfg config.Config, log *slog.Logger) error {
	db, err := postgres.Open(ctx, postgres.Config{URL: string(cfg.Postgres.URL)})
	if err != nil {
		return err
	}
	defer db.Close()
	b, err := bus.Connect(busConfig(&cfg, "controlplane declare-loss"), leasestore.NewRecovery(db), log)
	if err != nil {
		return err
	}
	defer b.Close()

	return recovery.New(recovery.Config{
		ID:         recovery.NewID(),
		Store:      leasestore.NewRecovery(db),
		Bucket:     b,
		Window:     cfg.Session.Window,
		Keeps:      rollback.KeepsNever,
		OnEpoch:    func(int64) {},
		Log:        log,
		Registerer: prometheus.NewRegistry(),
	}).Declare(ctx)
}

func busConfig(cfg *config.Config, name string) bus.Config {
	return bus.Config{
		URL:           cfg.NATS.URL,
		User:          cfg.NATS.User,
		Password:      string(cfg.NATS.Password),
		CAFile:        cfg.NATS.CAFile,
		CertFile:      cfg.NATS.CertFile,
		KeyFile:       cfg.NATS.KeyFile,
		Replicas:      cfg.NATS.Replicas,
		UsageMaxBytes: cfg.NATS.UsageMaxBytes,
		UsageKept:     cfg.NATS.UsageKept,
		MonitorURL:    cfg.NATS.MonitorURL,
		Name:          name,
	}
}
