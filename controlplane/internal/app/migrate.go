package app

import (
	"context"
	"log/slog"

	"modelgateway/controlplane/internal/config"
	"modelgateway/controlplane/internal/postgres"
)

// Migrate updates the database schema to this version. It may run at any time and concurrently.
func Migrate(ctx context.Context, cfg config.Config, log *slog.Logger) error {
	applied, err := postgres.Migrate(ctx, postgres.Config{URL: string(cfg.Postgres.URL)})
	for _, m := range applied {
		log.InfoContext(ctx, "migration applied", "version", m.Version, "name", m.Name)
	}

	if err != nil {
		return err
	}

	log.InfoContext(ctx, "schema is up to date", "applied", len(applied))
	if cfg.Postgres.RuntimeRole == "" {
		return nil
	}
	if err := postgres.Grant(ctx, postgres.Config{URL: string(cfg.Postgres.URL)}, cfg.Postgres.RuntimeRole); err != nil {
		return err
	}

	log.InfoContext(ctx, "privileges granted", "role", cfg.Postgres.RuntimeRole)
	return nil
}
