package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"modelgateway/migrations"
)

// ErrNotMigrated is returned for a database whose schema is older than this
// program.
var ErrNotMigrated = errors.New("the schema is older than this program: run migrate")

// Migration is one applied schema change.
type Migration struct {
	Version int64
	Name    string
}

const (
	// migrationLockTimeout is how long a migration waits for the lock of a table. All other users of the table wait
	// meanwhile, so a migration without this limit could stop the product.
	migrationLockTimeout = 3 * time.Second
	// migrationAttempts bounds the attempts. In the pauses of migrationPause between them, others can use the table.
	migrationAttempts = 40
	migrationPause    = 2 * time.Second
)

// Migrate updates the schema to this program's version and returns the migrations
// that it applied. It may run several times at once: one call migrates under an
// advisory lock, and the others then find an up-to-date schema. A migration that
// cannot lock its tables in time is tried again.
func Migrate(ctx context.Context, cfg Config) ([]Migration, error) {
	cfg.lockTimeout = migrationLockTimeout
	db, err := Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	provider, err := newProvider(db.pool, migrations.Files)
	if err != nil {
		return nil, err
	}
	defer func() { _ = provider.Close() }() // it does not close the pool
	return migrate(ctx, provider, migrationAttempts, migrationPause)
}

func migrate(ctx context.Context, provider *goose.Provider, attempts int, pause time.Duration) (applied []Migration, err error) {
	for attempt := 1; ; attempt++ {
		results, err := provider.Up(ctx)
		if partial, ok := errors.AsType[*goose.PartialError](err); ok {
			results = partial.Applied
		}

		for _, r := range results {
			applied = append(applied, Migration{r.Source.Version, r.Source.Path})
		}

		if err == nil {
			return applied, nil
		}
		if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != stateLockTimeout || attempt == attempts {
			return applied, fmt.Errorf("postgres: migrate: %w", err)
		}

		select {
		case <-ctx.Done():
			return applied, fmt.Errorf("postgres: migrate: %w", err)
		case <-time.After(pause):
		}
	}
}

func newProvider(pool *pgxpool.Pool, files fs.FS) (*goose.Provider, error) {
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return nil, fmt.Errorf("postgres: migration lock: %w", err)
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, stdlib.OpenDBFromPool(pool), files,
		goose.WithSessionLocker(locker))
	if err != nil {
		return nil, fmt.Errorf("postgres: read migrations: %w", err)
	}
	return provider, nil
}

// LatestMigration is the version of the newest migration in this program.
var LatestMigration = func() int64 {
	var found int64
	names, _ := fs.Glob(migrations.Files, "*.sql") // the pattern is well formed
	for _, name := range names {
		number, _, _ := strings.Cut(name, "_")
		if version, err := strconv.ParseInt(number, 10, 64); err == nil {
			found = max(found, version)
		}
	}
	return found
}()

// Migrated returns ErrNotMigrated unless the schema has every migration of this
// program. The schema may be newer, because consecutive releases run side by side
// during an update.
func (db *DB) Migrated(ctx context.Context) error {
	version, err := db.SchemaVersion(ctx)
	switch {
	case err != nil:
		return err
	case version == 0:
		return ErrNotMigrated
	case version < LatestMigration:
		return fmt.Errorf("%w (version %d of %d)", ErrNotMigrated, version, LatestMigration)
	}
	return nil
}

// SchemaVersion returns the version of the newest migration that was applied, zero
// for an empty database.
func (db *DB) SchemaVersion(ctx context.Context) (int64, error) {
	var version int64
	err := db.pool.QueryRow(ctx, "select coalesce(max(version_id), 0) from goose_db_version where is_applied").Scan(&version)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == stateUndefinedTable {
		return 0, nil
	}
	return version, Translate("read schema version", err)
}
