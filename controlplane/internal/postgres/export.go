package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/usage"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
)

// Export implements usage.Store.
func (s UsageStore) Export(ctx context.Context, query usage.ExportQuery) ([]usage.Record, error) {
	after, ceiling := ident.UUID(query.After), highestID
	if floor := lowestID(query.From); string(after[:]) < string(floor[:]) {
		after = before(floor)
	}
	if !query.To.IsZero() {
		ceiling = lowestID(query.To)
	}
	rows, err := s.export(ctx, &query, after, ceiling)
	if err != nil {
		return nil, Translate("export usage", err)
	}
	return toRecords(rows)
}

// export asks by the narrowest index.
//
//nolint:dupl // list is the same in the other direction
func (s UsageStore) export(ctx context.Context, query *usage.ExportQuery, after, ceiling ident.UUID) ([]sqlcgen.UsageRecord, error) {
	limit := int32(query.Limit)
	switch {
	case query.KeyID != key.ID{}:
		return s.q.ExportKeyUsage(ctx, sqlcgen.ExportKeyUsageParams{
			KeyID: ident.UUID(query.KeyID), AccountID: accountOrNil(query.AccountID), After: after, Ceiling: ceiling, Model: query.Model, RowLimit: limit,
		})
	case query.AccountID != account.ID{}:
		return s.q.ExportAccountUsage(ctx, sqlcgen.ExportAccountUsageParams{
			AccountID: ident.UUID(query.AccountID), After: after, Ceiling: ceiling, Model: query.Model, RowLimit: limit,
		})
	case query.Model != "":
		return s.q.ExportModelUsage(ctx, sqlcgen.ExportModelUsageParams{Model: query.Model, After: after, Ceiling: ceiling, RowLimit: limit})
	default:
		return s.q.ExportUsage(ctx, sqlcgen.ExportUsageParams{After: after, Ceiling: ceiling, RowLimit: limit})
	}
}

// before is the id next below another one; the lowest is its own.
func before(u ident.UUID) ident.UUID {
	if u.IsZero() {
		return u
	}
	for i := len(u) - 1; i >= 0; i-- {
		if u[i]--; u[i] != 0xff {
			break
		}
	}
	return u
}

func toRecords(rows []sqlcgen.UsageRecord) ([]usage.Record, error) {
	records := make([]usage.Record, len(rows))
	for i := range rows {
		var err error
		if records[i], err = toUsage(&rows[i]); err != nil {
			return nil, err
		}
	}
	return records, nil
}

// distantFuture is after everything that is booked.
var distantFuture = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// Entries implements ledger.Store.
func (s LedgerStore) Entries(ctx context.Context, query ledger.EntryQuery) ([]ledger.Entry, error) {
	if query.To.IsZero() {
		query.To = distantFuture
	}
	read := s.entries
	if query.AccountID != (account.ID{}) {
		read = s.accountEntries
	}
	rows, err := read(ctx, &query)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, validation.New("cursor", "names no transaction")
	}
	entries := make([]ledger.Entry, len(rows))
	for i := range rows {
		entries[i] = toEntry(&rows[i])
	}
	return entries, Translate("export ledger", err)
}

// entries reads those of all books. The place of a transaction in the order of
// booking is looked up.
func (s LedgerStore) entries(ctx context.Context, query *ledger.EntryQuery) ([]sqlcgen.ExportLedgerRow, error) {
	arg := sqlcgen.ExportLedgerParams{
		FromMoment: query.From, ToMoment: query.To, AfterMoment: query.From, AfterID: ident.UUID(query.After), AfterLine: int32(query.AfterLine),
		RowLimit: int32(query.Limit),
	}
	if query.After != (ledger.ID{}) {
		var err error
		if arg.AfterMoment, err = s.q.BookedAt(ctx, arg.AfterID); err != nil {
			return nil, err
		}
	}
	return s.q.ExportLedger(ctx, arg)
}

func (s LedgerStore) accountEntries(ctx context.Context, query *ledger.EntryQuery) ([]sqlcgen.ExportLedgerRow, error) {
	own, err := s.q.ExportAccountLedger(ctx, sqlcgen.ExportAccountLedgerParams{
		AccountID: ident.UUID(query.AccountID), FromMoment: query.From, ToMoment: query.To, AfterID: ident.UUID(query.After),
		AfterLine: int32(query.AfterLine), RowLimit: int32(query.Limit),
	})
	rows := make([]sqlcgen.ExportLedgerRow, len(own))
	for i := range own {
		rows[i] = sqlcgen.ExportLedgerRow(own[i])
	}
	return rows, err
}

func toEntry(row *sqlcgen.ExportLedgerRow) ledger.Entry {
	e := ledger.Entry{
		TransactionID: ledger.ID(row.ID), Line: int(row.Line), Kind: ledger.Kind(row.Kind), Book: row.Book, Amount: money.Nano(row.Amount),
		Reference: row.Reference, Reason: row.Reason, Actor: row.Actor, RequestID: requestText(row.RequestID), CreatedAt: row.CreatedAt,
	}
	if row.AccountID != nil {
		e.AccountID = account.ID(*row.AccountID)
	}
	return e
}
