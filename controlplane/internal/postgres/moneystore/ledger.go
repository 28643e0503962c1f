// Package moneystore keeps the ledger in Postgres and compares it with usage records, totals and pools. It settles a batch of
// usage events in one transaction, keeps those in quarantine that could not be settled, reads statements, and knows which months
// are archived.
package moneystore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/accountstore"
	"modelgateway/controlplane/internal/postgres/changestore"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/webhook"
	"modelgateway/shared/ident"
	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/money"
	"modelgateway/shared/wire"
)

// Ledger keeps the ledger.
type Ledger struct{ db *postgres.DB }

// NewLedger returns a store that uses db.
func NewLedger(db *postgres.DB) *Ledger { return &Ledger{db} }

func (s *Ledger) Post(ctx context.Context, t ledger.Transaction) (booked ledger.Transaction, posted bool, err error) {
	about, err := requestOf(&t)
	if err != nil {
		return ledger.Transaction{}, false, err
	}

	err = s.db.InTx(ctx, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		rev := int64(0)
		if t.Amount < 0 { // a revision is taken before anything else is locked
			var err error
			if rev, err = q.TakeRevision(ctx); err != nil {
				return postgres.Translate("take revision", err)
			}
		}

		if err := accountstore.LockLimits(ctx, q); err != nil {
			return err
		}

		row, err := q.InsertTransaction(ctx, sqlcgen.InsertTransactionParams{
			ID:        ident.UUID(t.ID),
			Kind:      string(t.Kind),
			Reference: t.Reference,
			Reason:    t.Reason,
			Actor:     t.Actor,
			RequestID: about,
		})
		if errors.Is(err, pgx.ErrNoRows) {
			posted = false
			booked, err = existingTransaction(ctx, q, t)
			return err
		}

		if err != nil {
			return postgres.Translate("insert transaction", err)
		}
		if err := checkRequest(ctx, q, about, t.AccountID); err != nil {
			return err
		}

		posted = true
		booked = ledger.Transaction{
			ID:        ledger.ID(row.ID),
			AccountID: t.AccountID,
			Kind:      t.Kind,
			Amount:    t.Amount,
			Reference: row.Reference,
			Reason:    row.Reason,
			Actor:     row.Actor,
			CreatedAt: row.CreatedAt,
			RequestID: t.RequestID,

			MayOverdraw: t.MayOverdraw,
		}
		if err := s.writeEntries(ctx, q, &booked); err != nil {
			return err
		}
		if err := accountstore.CheckCredits(ctx, q); err != nil || rev == 0 {
			return err
		}

		c, err := changestore.InsertKeyChange(ctx, q, rev, wire.AccountUpdated, ident.UUID(t.AccountID), nil)
		booked.Change = &c
		return postgres.Translate("write key change", err)
	})
	return booked, posted, err
}

// requestOf returns the request that a correction refers to; nil if there is none.
func requestOf(t *ledger.Transaction) (*ident.UUID, error) {
	if t.RequestID == "" {
		return nil, nil //nolint:nilnil // a transaction need not refer to a request
	}
	u, err := ident.Request.Parse(t.RequestID)
	if err != nil {
		return nil, ledger.ErrNoRequest
	}
	return &u, nil
}

// checkRequest returns ErrNoRequest unless a request is settled and belongs to the account.
func checkRequest(ctx context.Context, q *sqlcgen.Queries, request *ident.UUID, id account.ID) error {
	if request == nil {
		return nil
	}
	owner, err := q.AccountOfRequest(ctx, *request)
	if err == nil && owner == ident.UUID(id) {
		return nil
	}
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return postgres.Translate("find request", err)
	}
	return ledger.ErrNoRequest
}

func requestText(id *ident.UUID) string {
	if id == nil {
		return ""
	}
	return ident.Request.Format(*id)
}

func (s *Ledger) Corrections(ctx context.Context, request ident.UUID) ([]ledger.Transaction, error) {
	rows, err := s.db.Queries().CorrectionsOfRequest(ctx, request)
	if err != nil {
		return nil, postgres.Translate("list corrections", err)
	}
	found := make([]ledger.Transaction, len(rows))
	for i := range rows {
		found[i] = TransactionOf(sqlcgen.ListAccountTransactionsRow(rows[i]))
	}
	return found, nil
}

// writeEntries writes the entries of a transaction and changes the balance of the account.
func (s *Ledger) writeEntries(ctx context.Context, q *sqlcgen.Queries, t *ledger.Transaction) error {
	row, err := q.LockAccountPool(ctx, sqlcgen.LockAccountPoolParams{AccountID: ident.UUID(t.AccountID), Kind: int16(wire.Balance)})
	if err != nil {
		return postgres.NotFoundAs("lock balance", err, account.ErrNotFound)
	}
	if err := t.Fits(money.Nano(row.Total)); err != nil {
		return err
	}

	if err := t.Covered(money.Nano(row.Total - row.Settled)); err != nil {
		return err
	}

	pool, err := leasestore.ResizePool(ctx, q, (*sqlcgen.LockPoolsRow)(&row), func(p *allocator.Pool) { p.Adjust(int64(t.Amount)) })
	if err != nil {
		return postgres.Translate("change balance", err)
	}
	if err := insertEvents(ctx, q, t, pool); err != nil {
		return postgres.Translate("write events", err)
	}

	entries := sqlcgen.InsertCreditEntriesParams{
		TransactionID: ident.UUID(t.ID),
		AccountID:     ident.UUID(t.AccountID),
		Amount:        int64(t.Amount),
		Negated:       -int64(t.Amount),
		Against:       t.Kind.OffsettingAccount(),
		Kind:          string(t.Kind),
	}
	if err := q.InsertCreditEntries(ctx, entries); err != nil {
		return postgres.Translate("insert entries", err)
	}

	return postgres.Translate("write audit entry", changestore.InsertAudit(ctx, q, "ledger."+string(t.Kind), t.AccountID, nil, t))
}

func existingTransaction(ctx context.Context, q *sqlcgen.Queries, t ledger.Transaction) (ledger.Transaction, error) {
	row, err := q.GetCustomerTransaction(ctx, sqlcgen.GetCustomerTransactionParams{Kind: string(t.Kind), Reference: t.Reference})
	if err != nil {
		return ledger.Transaction{}, postgres.Translate("get transaction by reference", err)
	}
	return TransactionOf(sqlcgen.ListAccountTransactionsRow(row)), nil
}

func (s *Ledger) List(ctx context.Context, query ledger.Query) ([]ledger.Transaction, error) {
	rows, err := s.db.PlannedQueries().ListAccountTransactions(ctx, sqlcgen.ListAccountTransactionsParams{
		AccountID: ident.UUID(query.AccountID),
		Kind:      string(query.Kind),
		FirstPage: query.Before == ledger.ID{},
		Before:    ident.UUID(query.Before),
		RowLimit:  int32(query.Limit),
	})
	if err != nil {
		return nil, postgres.Translate("list transactions", err)
	}
	found := make([]ledger.Transaction, len(rows))
	for i := range rows {
		found[i] = TransactionOf(rows[i])
	}
	return found, nil
}

func (s *Ledger) Balance(ctx context.Context, id account.ID) (account.Balance, error) {
	rows, err := s.db.Queries().AccountBalances(ctx, []ident.UUID{ident.UUID(id)})
	if err != nil {
		return account.Balance{}, postgres.Translate("get balance", err)
	}
	if len(rows) == 0 {
		return account.Balance{}, account.ErrNotFound
	}
	return accountstore.BalanceOf(&rows[0]), nil
}

// TransactionOf returns a transaction from its row.
func TransactionOf(row sqlcgen.ListAccountTransactionsRow) ledger.Transaction {
	return ledger.Transaction{
		ID:        ledger.ID(row.ID),
		AccountID: account.ID(row.AccountID),
		Kind:      ledger.Kind(row.Kind),
		Amount:    money.Nano(row.Amount),
		Reference: row.Reference,
		Reason:    row.Reason,
		Actor:     row.Actor,
		CreatedAt: row.CreatedAt,
		RequestID: requestText(row.RequestID),
	}
}

// insertEvents writes the event of a transaction, and updates the alarms of the
// balance.
func insertEvents(ctx context.Context, q *sqlcgen.Queries, t *ledger.Transaction, pool *leasestore.AlarmPool) error {
	if t.Amount > 0 {
		pool.ClearExhausted()
	}

	left, eventType, amount := money.Nano(pool.Left()), webhook.Credited, t.Amount
	if amount < 0 {
		eventType, amount = webhook.Debited, -amount
	}

	if err := changestore.InsertEvents(ctx, q, webhook.Event{
		Type: eventType, AccountID: pool.AccountID,
		Facts: webhook.Facts{
			Amount:    &amount,
			Balance:   &left,
			Kind:      string(t.Kind),
			Reference: t.Reference,
		},
	}); err != nil {
		return err
	}

	return leasestore.UpdateAlarms(ctx, q, *pool)
}
