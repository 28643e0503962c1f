package moneystore

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/postgres/usagestore"
	"modelgateway/controlplane/internal/statement"
	"modelgateway/controlplane/internal/usage"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
)

// Statements reads statements.
type Statements struct{ db *postgres.DB }

// NewStatements returns a store that uses db.
func NewStatements(db *postgres.DB) *Statements { return &Statements{db} }

// Entries implements statement.Store. It determines whether the period is final
// before it takes the snapshot, so that the snapshot contains all of a final period.
func (s *Statements) Entries(ctx context.Context, query statement.Query, limit int) (statement.Entries, error) {
	var found statement.Entries
	began, err := s.db.Queries().OldestTransaction(ctx)
	if err != nil {
		return found, postgres.Translate("find the oldest transaction", err)
	}
	_, end := query.Moments()
	found.Final = !end.After(began)
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err = pgx.BeginTxFunc(ctx, s.db.Pool(), snapshot, func(tx pgx.Tx) error {
		return readEntries(ctx, postgres.Planned(tx), &query, limit, &found)
	})
	return found, postgres.Translate("read statement", err)
}

func readEntries(ctx context.Context, q *sqlcgen.Queries, query *statement.Query, limit int, found *statement.Entries) error {
	id := ident.UUID(query.AccountID)
	from, to := query.Moments()
	day := postgres.Day(from, pgtype.Finite)
	opening, err := q.OpeningBalance(ctx, sqlcgen.OpeningBalanceParams{
		AccountID:  id,
		FromMoment: from,
		FromDay:    day,
		DayBegan:   day.Time,
	})
	if err != nil {
		return err
	}

	found.Opening = money.Nano(opening)
	rows, err := q.StatementTransactions(ctx, sqlcgen.StatementTransactionsParams{
		AccountID:  id,
		FromMoment: from,
		ToMoment:   to,
		RowLimit:   int32(limit),
	})
	if err != nil {
		return err
	}

	found.Transactions = make([]ledger.Transaction, len(rows))
	for i := range rows {
		found.Transactions[i] = TransactionOf(sqlcgen.ListAccountTransactionsRow(rows[i]))
	}

	found.Lines, err = usagestore.ReadTotals(ctx, q, &usage.TotalQuery{
		By:        query.By,
		AccountID: query.AccountID,
		From:      query.Period.From,
		To:        query.Period.To,
		Zone:      query.Zone,
		Booked:    true,
		Limit:     limit,
	})
	if err != nil || usage.IsUTC(query.Zone) || len(found.Lines) == limit {
		return err
	}

	return checkCharged(ctx, q, query, found.Lines)
}

// checkCharged returns usage.ErrRecordsDropped unless the lines are what the ledger has: records of requests that began
// long before they were booked may be dropped already.
func checkCharged(ctx context.Context, q *sqlcgen.Queries, query *statement.Query, lines []usage.Total) error {
	from, to := query.Moments()
	charged, err := q.Charged(ctx, sqlcgen.ChargedParams{
		AccountID:  ident.UUID(query.AccountID),
		FromMoment: from,
		ToMoment:   to,
	})
	for i := range lines {
		charged -= int64(lines[i].Cost)
	}
	if err == nil && charged != 0 {
		return usage.ErrRecordsDropped
	}
	return err
}
