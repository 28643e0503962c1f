package postgres

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/recovery"
	"modelgateway/shared/lease/rollback"
)

// requireSyncCommit makes a commit wait at least for the local write-ahead log.
// Otherwise a server could lose acknowledged commits when its processes crash.
const requireSyncCommit = `select set_config('synchronous_commit', 'on', false) where current_setting('synchronous_commit') = 'off'`

// connGuard lets this process use Postgres only as the recovery.Guard allows.
// Tests and tools have none.
type connGuard struct {
	guard atomic.Pointer[recovery.Guard]
}

// check is called with every new connection before it is used. An open connection
// always leads to the same server, so it needs no further check.
func (g *connGuard) check(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, requireSyncCommit); err != nil {
		return fmt.Errorf("set synchronous_commit: %w", err)
	}
	guard := g.guard.Load()
	if guard == nil {
		return nil
	}
	incarnation, err := ReadIncarnation(ctx, conn)
	if err != nil {
		return err
	}
	if !guard.OnConnect(incarnation) {
		return recovery.ErrNotServing
	}
	return nil
}

// commit runs fn in a transaction, and commits it with its commit marker.
func (g *connGuard) commit(ctx context.Context, pool *pgxpool.Pool, options pgx.TxOptions, fn func(tx pgx.Tx) error) error {
	guard := g.guard.Load()
	if guard == nil {
		return pgx.BeginTxFunc(ctx, pool, options, fn) //nolint:wrapcheck // fn has wrapped the error
	}

	c, err := guard.BeginCommit()
	if err != nil {
		return err
	}

	err = pgx.BeginTxFunc(ctx, pool, options, func(tx pgx.Tx) error {
		if err := fn(tx); err != nil {
			return err
		}
		return WriteCommitMarker(ctx, sqlcgen.New(tx), c.CommitMarker)
	})
	if err != nil {
		guard.Failed(c)
		return err //nolint:wrapcheck // fn has wrapped the error
	}

	return guard.Committed(c)
}

// WriteCommitMarker writes the row that proves that a transaction was committed.
// It returns recovery.ErrFenced if the replica was fenced.
func WriteCommitMarker(ctx context.Context, q *sqlcgen.Queries, w rollback.CommitMarker) error {
	written, err := q.InsertCommitMarker(ctx, sqlcgen.InsertCommitMarkerParams{ReplicaID: w.Replica, Number: w.N})
	if err != nil {
		return Translate("write commit marker", err)
	}
	if written == 0 {
		return recovery.ErrFenced
	}
	return nil
}

// incarnationQuery returns the server incarnation: one run of one server with one
// copy of the database. In another incarnation commits may be missing. A promoted
// standby is another incarnation, because its timeline differs. The query fails on
// a standby that was not promoted, which may be behind the primary.
//
// The part after the first slash is the history of rollback.Observation. The
// system identifier is the same for a cluster and its standbys.
const incarnationQuery = `select extract(epoch from pg_postmaster_start_time())
	|| '/' || (select system_identifier from pg_control_system()) || '/' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)
	|| '/' || (select oid from pg_database where datname = current_database()) || '/' || 'cluster_state'::regclass::oid`

// ReadIncarnation reads the server incarnation of a connection.
func ReadIncarnation(ctx context.Context, db sqlcgen.DBTX) (name string, err error) {
	if err := db.QueryRow(ctx, incarnationQuery).Scan(&name); err != nil {
		return "", Translate("read server incarnation", err)
	}
	return name, nil
}

// ServingFor returns how long this process has served in the server incarnation,
// by its own monotonic clock. Without a guard there is only one incarnation.
func (db *DB) ServingFor() time.Duration {
	if guard := db.guard.guard.Load(); guard != nil {
		return guard.ServingFor()
	}
	return math.MaxInt64 / 2
}

// SetGuard makes every connection and every transaction ask the guard. It replaces
// open connections.
func (db *DB) SetGuard(g *recovery.Guard) {
	db.guard.guard.Store(g)
	db.pool.Reset()
}
