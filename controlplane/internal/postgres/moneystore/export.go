package moneystore

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
)

// distantFuture is later than every transaction.
var distantFuture = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

func (s *Ledger) Entries(ctx context.Context, query ledger.EntryQuery) ([]ledger.Entry, error) {
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

	return entries, postgres.Translate("export ledger", err)
}

// entries reads the entries of all ledger accounts, ordered by the times of their
// transactions. It first reads the time of the cursor's transaction.
func (s *Ledger) entries(ctx context.Context, query *ledger.EntryQuery) ([]sqlcgen.ExportLedgerRow, error) {
	arg := sqlcgen.ExportLedgerParams{
		FromMoment:  query.From,
		ToMoment:    query.To,
		AfterMoment: query.From,
		AfterID:     ident.UUID(query.After),
		AfterLine:   int32(query.AfterLine),
		Kind:        string(query.Kind),
		RowLimit:    int32(query.Limit),
	}
	if query.After != (ledger.ID{}) {
		var err error
		if arg.AfterMoment, err = s.db.Queries().TransactionCreatedAt(ctx, arg.AfterID); err != nil {
			return nil, err
		}
	}
	return s.db.Queries().ExportLedger(ctx, arg)
}

func (s *Ledger) accountEntries(ctx context.Context, query *ledger.EntryQuery) ([]sqlcgen.ExportLedgerRow, error) {
	own, err := s.db.Queries().ExportAccountLedger(ctx, sqlcgen.ExportAccountLedgerParams{
		AccountID:  ident.UUID(query.AccountID),
		FromMoment: query.From,
		ToMoment:   query.To,
		AfterID:    ident.UUID(query.After),
		AfterLine:  int32(query.AfterLine),
		Kind:       string(query.Kind),
		RowLimit:   int32(query.Limit),
	})
	rows := make([]sqlcgen.ExportLedgerRow, len(own))
	for i := range own {
		rows[i] = sqlcgen.ExportLedgerRow(own[i])
	}
	return rows, err
}

func toEntry(row *sqlcgen.ExportLedgerRow) ledger.Entry {
	e := ledger.Entry{
		TransactionID: ledger.ID(row.ID),
		Line:          int(row.Line),
		Kind:          ledger.Kind(row.Kind),
		LedgerAccount: row.LedgerAccount,
		Amount:        money.Nano(row.Amount),
		Reference:     row.Reference,
		Reason:        row.Reason,
		Actor:         row.Actor,
		RequestID:     requestText(row.RequestID),
		CreatedAt:     row.CreatedAt,
		CreditID:      ledger.ID(postgres.Deref(row.CreditID)),
		EffectiveAt:   postgres.Deref(row.EffectiveAt),
	}
	if e.OfCredit() {
		e.Priority, e.ExpiresAt = int(row.Priority), postgres.Deref(row.ExpiresAt)
	}
	if row.AccountID != nil {
		e.AccountID = account.ID(*row.AccountID)
	}

	return e
}
