package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/statement"
	"modelgateway/controlplane/internal/usage"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
)

// Totals implements usage.Store.
func (s UsageStore) Totals(ctx context.Context, query usage.TotalQuery) ([]usage.Total, error) {
	if query.KeyID != (key.ID{}) && query.AccountID == (account.ID{}) {
		owner, err := s.q.AccountOfKey(ctx, ident.UUID(query.KeyID))
		if errors.Is(err, pgx.ErrNoRows) {
			return nil, nil
		}
		if err != nil {
			return nil, Translate("find key", err)
		}
		query.AccountID = account.ID(owner)
	}
	totals, err := readTotals(ctx, s.q, &query)
	return totals, Translate("add up usage", err)
}

// readTotals asks by the narrowest index.
func readTotals(ctx context.Context, q *sqlcgen.Queries, query *usage.TotalQuery) ([]usage.Total, error) {
	after := usage.Total{}
	if query.After != nil {
		after = *query.After
	}
	all := sqlcgen.UsageTotalsParams{
		ByDay: query.By.Day, ByAccount: query.By.Account, ByKey: query.By.Key, ByModel: query.By.Model,
		FromDay: day(query.From, pgtype.NegativeInfinity), ToDay: day(query.To, pgtype.Infinity), OfModel: query.Model,
		AfterDay: day(after.Day, pgtype.Finite), AfterAccount: ident.UUID(after.AccountID), AfterKey: ident.UUID(after.KeyID), AfterModel: after.Model,
		FirstPage: query.After == nil, RowLimit: int32(query.Limit),
	}
	if query.AccountID == (account.ID{}) && !query.By.Account && !query.By.Key {
		return readModelTotals(ctx, q, &all)
	}
	if query.AccountID == (account.ID{}) && !query.By.Key && !query.By.Model && query.Model == "" {
		return readAccountTotals(ctx, q, &all)
	}
	if query.AccountID == (account.ID{}) {
		rows, err := q.UsageTotals(ctx, all)
		totals := make([]usage.Total, len(rows))
		for i := range rows {
			totals[i] = toTotal(&rows[i])
		}
		return totals, err
	}
	rows, err := q.AccountUsageTotals(ctx, sqlcgen.AccountUsageTotalsParams{
		ByDay: all.ByDay, ByAccount: all.ByAccount, ByKey: all.ByKey, ByModel: all.ByModel, Booked: query.Booked,
		OfAccount: ident.UUID(query.AccountID), AnyKey: query.KeyID == key.ID{}, OfKey: ident.UUID(query.KeyID), OfModel: all.OfModel,
		FromDay: all.FromDay, ToDay: all.ToDay, AfterDay: all.AfterDay, AfterAccount: all.AfterAccount, AfterKey: all.AfterKey,
		AfterModel: all.AfterModel, FirstPage: all.FirstPage, RowLimit: all.RowLimit,
	})
	totals := make([]usage.Total, len(rows))
	for i := range rows {
		totals[i] = toTotal((*sqlcgen.UsageTotalsRow)(&rows[i]))
	}
	return totals, err
}

// readModelTotals reads totals in which accounts and keys do not matter.
func readModelTotals(ctx context.Context, q *sqlcgen.Queries, all *sqlcgen.UsageTotalsParams) ([]usage.Total, error) {
	rows, err := q.ModelUsageTotals(ctx, sqlcgen.ModelUsageTotalsParams{
		ByDay: all.ByDay, ByModel: all.ByModel, FromDay: all.FromDay, ToDay: all.ToDay, OfModel: all.OfModel, AfterDay: all.AfterDay,
		AfterModel: all.AfterModel, FirstPage: all.FirstPage, RowLimit: all.RowLimit,
	})
	totals := make([]usage.Total, len(rows))
	for i := range rows {
		row := &rows[i]
		totals[i] = toTotal(&sqlcgen.UsageTotalsRow{
			Day: row.Day, Model: row.Model, Requests: row.Requests, Estimated: row.Estimated, Input: row.Input, CachedInput: row.CachedInput,
			CacheWrite: row.CacheWrite, Output: row.Output, Reasoning: row.Reasoning, AudioIn: row.AudioIn, AudioOut: row.AudioOut,
			ImageIn: row.ImageIn, ImageOut: row.ImageOut, Images: row.Images, Seconds: row.Seconds, ServerToolRequests: row.ServerToolRequests,
			Cost: row.Cost,
		})
	}
	return totals, err
}

// readAccountTotals reads totals of all accounts in which keys and models do
// not matter.
func readAccountTotals(ctx context.Context, q *sqlcgen.Queries, all *sqlcgen.UsageTotalsParams) ([]usage.Total, error) {
	rows, err := q.UsageTotalsOfAccounts(ctx, sqlcgen.UsageTotalsOfAccountsParams{
		ByDay: all.ByDay, FromDay: all.FromDay, ToDay: all.ToDay, AfterDay: all.AfterDay, AfterAccount: all.AfterAccount,
		FirstPage: all.FirstPage, RowLimit: all.RowLimit,
	})
	totals := make([]usage.Total, len(rows))
	for i := range rows {
		row := &rows[i]
		totals[i] = toTotal(&sqlcgen.UsageTotalsRow{
			Day: row.Day, AccountID: row.AccountID, Requests: row.Requests, Estimated: row.Estimated, Input: row.Input, CachedInput: row.CachedInput,
			CacheWrite: row.CacheWrite, Output: row.Output, Reasoning: row.Reasoning, AudioIn: row.AudioIn, AudioOut: row.AudioOut,
			ImageIn: row.ImageIn, ImageOut: row.ImageOut, Images: row.Images, Seconds: row.Seconds, ServerToolRequests: row.ServerToolRequests,
			Cost: row.Cost,
		})
	}
	return totals, err
}

// day is a UTC day as Postgres takes it; none is what the caller says.
func day(t time.Time, none pgtype.InfinityModifier) pgtype.Date {
	if t.IsZero() && none != pgtype.Finite {
		return pgtype.Date{InfinityModifier: none, Valid: true}
	}
	return pgtype.Date{Time: t.UTC(), Valid: true}
}

func toTotal(row *sqlcgen.UsageTotalsRow) usage.Total {
	return usage.Total{
		Day: row.Day.Time, AccountID: account.ID(row.AccountID), KeyID: key.ID(row.KeyID), Model: row.Model,
		Sums: usage.Sums{
			Requests: row.Requests, Estimated: row.Estimated, Input: row.Input, CachedInput: row.CachedInput, CacheWrite: row.CacheWrite,
			Output: row.Output, Reasoning: row.Reasoning, AudioIn: row.AudioIn, AudioOut: row.AudioOut, ImageIn: row.ImageIn, ImageOut: row.ImageOut,
			Images: row.Images, Seconds: row.Seconds, ServerToolRequests: row.ServerToolRequests, Cost: money.Nano(row.Cost),
		},
	}
}

// StatementStore reads statements; it implements statement.Store.
type StatementStore struct{ *DB }

// Entries implements statement.Store. Whether the period is final is asked
// before the snapshot is taken: what was booked into it by then is in the
// snapshot.
func (s StatementStore) Entries(ctx context.Context, query statement.Query, limit int) (statement.Entries, error) {
	var found statement.Entries
	began, err := s.q.OldestTransaction(ctx)
	if err != nil {
		return found, Translate("find the oldest transaction", err)
	}
	found.Final = !query.Period.To.After(began)
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err = pgx.BeginTxFunc(ctx, s.pool, snapshot, func(tx pgx.Tx) error {
		return readEntries(ctx, sqlcgen.New(tx), &query, limit, &found)
	})
	return found, Translate("read statement", err)
}

func readEntries(ctx context.Context, q *sqlcgen.Queries, query *statement.Query, limit int, found *statement.Entries) error {
	id := ident.UUID(query.AccountID)
	opening, err := q.OpeningBalance(ctx, sqlcgen.OpeningBalanceParams{
		AccountID: id, FromMoment: query.Period.From, FromDay: day(query.Period.From, pgtype.Finite),
	})
	if err != nil {
		return err
	}
	found.Opening = money.Nano(opening)
	rows, err := q.StatementTransactions(ctx, sqlcgen.StatementTransactionsParams{
		AccountID: id, FromMoment: query.Period.From, ToMoment: query.Period.To, RowLimit: int32(limit),
	})
	if err != nil {
		return err
	}
	found.Transactions = make([]ledger.Transaction, len(rows))
	for i := range rows {
		found.Transactions[i] = toTransaction(sqlcgen.ListAccountTransactionsRow(rows[i]))
	}
	found.Lines, err = readTotals(ctx, q, &usage.TotalQuery{
		By: query.By, AccountID: query.AccountID, From: query.Period.From, To: query.Period.To, Booked: true, Limit: limit,
	})
	return err
}
