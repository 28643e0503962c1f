package catalogstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/catalog"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/shared/money"
)

// Active implements catalog.Store. Days are those of UTC.
func (s *Store) Active(ctx context.Context, models []string, since time.Time) (byModel map[string]int64, total int64, err error) {
	q := sqlcgen.New(s.db.Pool())
	rows, err := q.ActiveAccountsByModel(
		ctx,
		sqlcgen.ActiveAccountsByModelParams{Since: postgres.Day(since, pgtype.NegativeInfinity), Models: models},
	)
	if err != nil {
		return nil, 0, postgres.Translate("count active accounts", err)
	}
	byModel = map[string]int64{}
	for _, row := range rows {
		byModel[row.Model] = row.Accounts
	}
	total, err = q.ActiveAccounts(ctx, sqlcgen.ActiveAccountsParams{Since: postgres.Day(since, pgtype.NegativeInfinity), Models: models})
	return byModel, total, postgres.Translate("count active accounts", err)
}

func (s *Store) Traffic(ctx context.Context, models []string, since time.Time, limit int) ([]catalog.Traffic, error) {
	rows, err := sqlcgen.New(s.db.Pool()).
		ModelTraffic(ctx, sqlcgen.ModelTrafficParams{
			Since:    postgres.Day(since, pgtype.NegativeInfinity),
			Models:   models,
			RowLimit: int32(limit),
		})
	if err != nil {
		return nil, postgres.Translate("read traffic of models", err)
	}
	found := make([]catalog.Traffic, len(rows))
	for i, row := range rows {
		found[i] = catalog.Traffic{
			Account:  account.ID(row.AccountID),
			Name:     row.Name,
			Models:   row.Models,
			Requests: row.Requests,
			Cost:     money.Nano(row.Cost),
		}
	}
	return found, nil
}
