package moneystore

import (
	"context"

	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/shared/money"
)

func (s *Ledger) Books(ctx context.Context, p ledger.Period) (ledger.Books, error) {
	books := ledger.NewBooks()
	rows, err := s.sums(ctx, p)
	if err != nil {
		return books, postgres.Translate("sum the books", err)
	}
	for _, r := range rows {
		books.Add(r.LedgerAccount, ledger.Kind(r.Kind), money.Nano(r.Amount))
	}
	balances, err := s.db.Queries().SummarizeBalances(ctx)
	books.Negative, books.Overdrawn = balances.Negative, money.Nano(balances.Overdrawn)
	return books, postgres.Translate("summarize balances", err)
}

func (s *Ledger) sums(ctx context.Context, p ledger.Period) ([]sqlcgen.SumBooksRow, error) {
	if p != (ledger.Period{}) {
		return s.db.PlannedQueries().
			SumBooks(ctx, sqlcgen.SumBooksParams{FromTime: postgres.OptionalTime(p.From), ToTime: postgres.OptionalTime(p.To)})
	}
	whole, err := s.db.Queries().SumAllBooks(ctx)
	rows := make([]sqlcgen.SumBooksRow, len(whole))
	for i := range whole {
		rows[i] = sqlcgen.SumBooksRow(whole[i])
	}
	return rows, err
}
