// Package statementstore reads statements from Postgres: it implements statement.Store.
package statementstore

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/ledgerstore"
	"modelgateway/controlplane/internal/postgres/pgconv"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/postgres/usagestore"
	"modelgateway/controlplane/internal/statement"
	"modelgateway/controlplane/internal/usage"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
)

// Store reads statements; it implements statement.Store.
type Store struct{ db *postgres.DB }

// New returns a store that uses db.
func New(db *postgres.DB) *Store { return &Store{db} }

// Entries implements statement.Store. It determines whether the period is final
// before it takes the snapshot, so that the snapshot contains all of a final period.
func (s *Store) Entries(ctx context.Context, query statement.Query, limit int) (statement.Entries, error) {
	var found statement.Entries
	began, err := s.db.Queries().OldestTransaction(ctx)
	if err != nil {
		return found, postgres.Translate("find the oldest transaction", err)
	}
	found.Final = !query.Period.To.After(began)
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err = pgx.BeginTxFunc(ctx, s.db.Pool(), snapshot, func(tx pgx.Tx) error {
		return readEntries(ctx, sqlcgen.New(tx), &query, limit, &found)
	})
	return found, postgres.Translate("read statement", err)
}

func readEntries(ctx context.Context, q *sqlcgen.Queries, query *statement.Query, limit int, found *statement.Entries) error {
	id := ident.UUID(query.AccountID)
	opening, err := q.OpeningBalance(ctx, sqlcgen.OpeningBalanceParams{
		AccountID: id, FromMoment: query.Period.From, FromDay: pgconv.Day(query.Period.From, pgtype.Finite),
	})
	if err != nil {
		return err
	}

	found.Opening = money.Nano(opening)
	rows, err := q.StatementTransactions(ctx, sqlcgen.StatementTransactionsParams{
		AccountID:  id,
		FromMoment: query.Period.From,
		ToMoment:   query.Period.To,
		RowLimit:   int32(limit),
	})
	if err != nil {
		return err
	}

	found.Transactions = make([]ledger.Transaction, len(rows))
	for i := range rows {
		found.Transactions[i] = ledgerstore.TransactionOf(sqlcgen.ListAccountTransactionsRow(rows[i]))
	}

	found.Lines, err = usagestore.ReadTotals(ctx, q, &usage.TotalQuery{
		By:        query.By,
		AccountID: query.AccountID,
		From:      query.Period.From,
		To:        query.Period.To,
		Booked:    true,
		Limit:     limit,
	})
	return err
}
