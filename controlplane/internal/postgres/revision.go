package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/postgres/sqlcgen"
)

// InRevision runs a change in a transaction that has taken the next revision, so
// that the order of revisions is the order of commits. Like InTx it may run fn
// again.
func (db *DB) InRevision(ctx context.Context, operation string, fn func(q *sqlcgen.Queries, rev int64) error) error {
	return db.InTx(ctx, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		rev, err := q.TakeRevision(ctx)
		if err != nil {
			return Translate(operation, err)
		}
		return Translate(operation, fn(q, rev))
	})
}
