package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/postgres/sqlcgen"
)

// PlannedQueries returns queries outside of a transaction that Postgres plans for their values. It is for queries with
// filters that may be absent, and for periods of any length: a generic plan assumes short periods and rare values, and
// reads everything by an index.
func (db *DB) PlannedQueries() *sqlcgen.Queries { return Planned(db.Pool()) }

// Planned is PlannedQueries for a transaction.
func Planned(tx sqlcgen.DBTX) *sqlcgen.Queries { return sqlcgen.New(customPlans{tx}) }

// customPlans describes a statement again for each execution, so that no plan is kept.
type customPlans struct{ sqlcgen.DBTX }

func (p customPlans) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	rows, err := p.DBTX.Query(ctx, sql, append([]any{pgx.QueryExecModeDescribeExec}, args...)...)
	return rows, err
}

func (p customPlans) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return p.DBTX.QueryRow(ctx, sql, append([]any{pgx.QueryExecModeDescribeExec}, args...)...)
}
