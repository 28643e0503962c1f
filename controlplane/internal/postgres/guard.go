package postgres

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/recovery"
	"modelgateway/shared/lease/rollback"
)

// durable has a commit wait for the log, at least: otherwise a server whose
// processes crash goes on running without what it has answered.
const requireSyncCommit = `select set_config('synchronous_commit', 'on', false) where current_setting('synchronous_commit') = 'off'`

// guard lets this process use Postgres only as its Watch says, if it has one:
// tests and tools have none.
type connGuard struct {
	guard atomic.Pointer[recovery.Guard]
}

// check is called with every new connection before it is used: another server
// is met on new connections only.
func (g *connGuard) check(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, requireSyncCommit); err != nil {
		return fmt.Errorf("wait for the log: %w", err)
	}
	watch := g.guard.Load()
	if watch == nil {
		return nil
	}
	life, err := ReadIncarnation(ctx, conn)
	if err != nil {
		return err
	}
	if !watch.OnConnect(life) {
		return recovery.ErrNotServing
	}
	return nil
}

// commit runs fn in a transaction, and commits it with its witness.
func (g *connGuard) commit(ctx context.Context, pool *pgxpool.Pool, fn func(tx pgx.Tx) error) error {
	watch := g.guard.Load()
	if watch == nil {
		return pgx.BeginFunc(ctx, pool, fn) //nolint:wrapcheck // fn has said what it was doing
	}
	c, err := watch.BeginCommit()
	if err != nil {
		return err
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := fn(tx); err != nil {
			return err
		}
		return WriteCommitMarker(ctx, sqlcgen.New(tx), c.CommitMarker)
	})
	if err != nil {
		watch.Failed(c)
		return err //nolint:wrapcheck // fn has said what it was doing
	}
	return watch.Committed(c)
}

// witness leaves the row that shows that a transaction was committed.
func WriteCommitMarker(ctx context.Context, q *sqlcgen.Queries, w rollback.CommitMarker) error {
	written, err := q.Witness(ctx, sqlcgen.WitnessParams{Replica: w.Replica, N: w.N})
	if err != nil {
		return Translate("write witness", err)
	}
	if written == 0 {
		return recovery.ErrFenced
	}
	return nil
}

// life names one run of one server, with one copy of the database on it: in
// another one commits may lack. A standby that was promoted goes on running, but
// on another timeline; a standby that was not, which may lag, fails here.
const incarnationQuery = `select extract(epoch from pg_postmaster_start_time()) || '/' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)
	|| '/' || (select oid from pg_database where datname = current_database()) || '/' || 'meta'::regclass::oid`

func ReadIncarnation(ctx context.Context, db sqlcgen.DBTX) (name string, err error) {
	if err := db.QueryRow(ctx, incarnationQuery).Scan(&name); err != nil {
		return "", Translate("read the life of the server", err)
	}
	return name, nil
}

// SetWatch has the pool serve only while the watch allows it, from new connections on.
func (db *DB) SetGuard(w *recovery.Guard) {
	db.guard.guard.Store(w)
	db.pool.Reset()
}
