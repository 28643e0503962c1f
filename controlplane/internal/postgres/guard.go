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

// requireSyncCommit makes a commit wait for the local log at least. Otherwise a
// server whose processes crash would go on without commits that it acknowledged.
const requireSyncCommit = `select set_config('synchronous_commit', 'on', false) where current_setting('synchronous_commit') = 'off'`

// connGuard lets this process use Postgres only as the recovery.Guard allows.
// Tests and tools have none.
type connGuard struct {
	guard atomic.Pointer[recovery.Guard]
}

// check is called with every new connection before it is used: only a new
// connection can lead to another server.
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
func (g *connGuard) commit(ctx context.Context, pool *pgxpool.Pool, fn func(tx pgx.Tx) error) error {
	guard := g.guard.Load()
	if guard == nil {
		return pgx.BeginFunc(ctx, pool, fn) //nolint:wrapcheck // fn has said what it was doing
	}
	c, err := guard.BeginCommit()
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
		guard.Failed(c)
		return err //nolint:wrapcheck // fn has said what it was doing
	}
	return guard.Committed(c)
}

// WriteCommitMarker writes the row that shows that a transaction was committed.
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
// copy of the database. Another one may lack commits. A standby that was promoted
// goes on running, but on another timeline; the query fails on a standby that was
// not promoted, which may lag behind.
const incarnationQuery = `select extract(epoch from pg_postmaster_start_time()) || '/' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)
	|| '/' || (select oid from pg_database where datname = current_database()) || '/' || 'cluster_state'::regclass::oid`

// ReadIncarnation reads the server incarnation of a connection.
func ReadIncarnation(ctx context.Context, db sqlcgen.DBTX) (name string, err error) {
	if err := db.QueryRow(ctx, incarnationQuery).Scan(&name); err != nil {
		return "", Translate("read server incarnation", err)
	}
	return name, nil
}

// SetGuard makes every connection and every transaction ask the guard; open
// connections are replaced.
func (db *DB) SetGuard(g *recovery.Guard) {
	db.guard.guard.Store(g)
	db.pool.Reset()
}
