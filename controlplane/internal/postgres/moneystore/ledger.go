// Package moneystore keeps the ledger in Postgres and compares it with usage records, totals and pools. It settles a batch of
// usage events in one transaction, keeps those in quarantine that could not be settled, and reads statements.
//
// A batch of three events, for example: one is new, one was settled before, and the key of one does not exist. The transaction
//
//  1. finds the pools of each key, and marks the event without a key for quarantine,
//  2. inserts the usage records; the unique request id shows which events are new,
//  3. compares what was settled before with what comes now: another content goes into quarantine,
//  4. adds the charge of the new event to its lease, its pools, the ledger and the roll-ups,
//  5. stores the sequence numbers of all three, so that the proxy may delete them from its spool.
//
// If any step fails, nothing of it has happened, and the batch is delivered again. So a charge cannot be lost or booked twice,
// whatever ends in between.
package moneystore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/accountstore"
	"modelgateway/controlplane/internal/postgres/changestore"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/validation"
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

// Post implements ledger.Store. If a credit of the account has expired, that is booked first.
func (s *Ledger) Post(ctx context.Context, t ledger.Transaction) (booked ledger.Transaction, posted bool, err error) {
	for range expiryAttempts {
		booked, posted, err = s.post(ctx, t)
		if !errors.Is(err, errExpiryDue) {
			return booked, posted, err
		}
		change, expireErr := expireCredits(ctx, s.db, ident.UUID(t.AccountID))
		if expireErr != nil {
			return booked, false, expireErr
		}
		if t.Change == nil {
			t.Change = change
		}
	}
	return booked, posted, err
}

// expiryAttempts bounds how often something is tried again because a credit has just expired.
const expiryAttempts = 5

func (s *Ledger) post(ctx context.Context, t ledger.Transaction) (booked ledger.Transaction, posted bool, err error) {
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

		row, err := insertTransaction(ctx, q, &t, about)
		if errors.Is(err, pgx.ErrNoRows) {
			posted = false
			booked, err = existingTransaction(ctx, q, t)
			return err
		}

		if err != nil {
			return postgres.Translate("insert transaction", err)
		}

		posted = true
		booked = t
		booked.Priority, booked.CreatedAt = int(row.Priority), row.CreatedAt
		if err := s.writeEntries(ctx, q, &booked, about); err != nil {
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

func insertTransaction(
	ctx context.Context,
	q *sqlcgen.Queries,
	t *ledger.Transaction,
	about *ident.UUID,
) (sqlcgen.LedgerTransaction, error) {
	arg := sqlcgen.InsertTransactionParams{
		ID:          ident.UUID(t.ID),
		Kind:        string(t.Kind),
		Reference:   t.Reference,
		Reason:      t.Reason,
		Actor:       t.Actor,
		RequestID:   about,
		Priority:    int16(cmp.Or(t.Priority, ledger.DefaultPriority)),
		ExpiresAt:   postgres.OptionalTime(t.ExpiresAt),
		EffectiveAt: postgres.OptionalTime(t.EffectiveAt),
	}
	if t.CreditID != (ledger.ID{}) {
		arg.CreditID = (*ident.UUID)(&t.CreditID)
	}
	return q.InsertTransaction(ctx, arg)
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

// checkRequest returns ErrNoRequest unless the request of a transaction is settled and belongs to the account, and
// ErrRefundTooLarge if its refunds would exceed its charge. The account's balance pool is locked, so that no other refund is booked
// meanwhile; the transaction is written already.
func checkRequest(ctx context.Context, q *sqlcgen.Queries, request *ident.UUID, t *ledger.Transaction) error {
	if request == nil {
		return nil
	}
	charged, err := q.ChargeOfRequest(ctx, *request)
	if errors.Is(err, pgx.ErrNoRows) || (err == nil && charged.AccountID != ident.UUID(t.AccountID)) {
		return ledger.ErrNoRequest
	}
	if err != nil || t.Kind != ledger.Refund {
		return postgres.Translate("find request", err)
	}

	refunded, err := q.RefundedOfRequest(ctx, *request)
	if err != nil {
		return postgres.Translate("sum the refunds of a request", err)
	}
	if money.Nano(refunded)+t.Amount > money.Nano(charged.Cost) {
		return ledger.ErrRefundTooLarge
	}
	return nil
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

// writeEntries writes the entries of a transaction and changes the credits and the balance of the account.
func (s *Ledger) writeEntries(ctx context.Context, q *sqlcgen.Queries, t *ledger.Transaction, about *ident.UUID) error {
	row, credits, err := lockCredits(ctx, q, ident.UUID(t.AccountID))
	if err != nil {
		return err
	}
	if row.ExpiryDue {
		return errExpiryDue
	}
	if err := checkRequest(ctx, q, about, t); err != nil {
		return err
	}
	if err := t.Fits(money.Nano(row.Total)); err != nil {
		return err
	}

	if err := t.Covered(money.Nano(row.Total - row.Settled)); err != nil {
		return err
	}

	of, err := changeCredits(ctx, q, credits, t)
	if err != nil {
		return err
	}

	pool, err := leasestore.ResizePool(ctx, q, row, func(p *allocator.Pool) { p.Adjust(int64(t.Amount)) })
	if err != nil {
		return postgres.Translate("change balance", err)
	}
	if err := insertEvents(ctx, q, t, pool); err != nil {
		return postgres.Translate("write events", err)
	}
	if err := leasestore.UpdateAlarms(ctx, q, *pool); err != nil {
		return postgres.Translate("update alarms", err)
	}

	return insertEntries(ctx, q, t, of)
}

// changeCredits adds the credit that a transaction gives, or takes its amount from credits. It returns the kind of the credit that
// is paid back.
func changeCredits(ctx context.Context, q *sqlcgen.Queries, credits *heldCredits, t *ledger.Transaction) (of ledger.Kind, err error) {
	switch {
	case t.IsCredit():
		if !t.ExpiresAt.IsZero() && !t.ExpiresAt.After(t.CreatedAt) {
			return "", validation.New("expires_at", "must be in the future")
		}
		credits.Add(t.Credit())
	case t.Kind == ledger.Refund:
		credit, err := credits.find(ctx, q, t.CreditID)
		if err != nil {
			return "", err
		}
		if err := credits.PayBack(credit, -t.Amount); err != nil {
			return "", err
		}
		of = credit.Kind
	default:
		credits.Take(-t.Amount)
	}
	return of, postgres.Translate("change credits", credits.save(ctx, q))
}

// insertEntries writes both entries of a transaction, and its audit entry. of is the kind of the credit that it refers to.
func insertEntries(ctx context.Context, q *sqlcgen.Queries, t *ledger.Transaction, of ledger.Kind) error {
	entries := sqlcgen.InsertCreditEntriesParams{
		TransactionID: ident.UUID(t.ID),
		AccountID:     ident.UUID(t.AccountID),
		Amount:        int64(t.Amount),
		Negated:       -int64(t.Amount),
		Against:       t.OffsettingAccount(of),
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

// idTolerance is how far the time in the id of a transaction may be from when it is booked.
const idTolerance = time.Hour

func (s *Ledger) List(ctx context.Context, query ledger.Query) ([]ledger.Transaction, error) {
	var lowest ident.UUID
	if query.From != nil {
		lowest = postgres.LowestID(query.From.Add(-idTolerance))
	}
	before := ident.UUID(query.Before)
	if query.To != nil {
		highest := postgres.LowestID(query.To.Add(idTolerance))
		if before.IsZero() || bytes.Compare(highest[:], before[:]) < 0 {
			before = highest
		}
	}

	rows, err := s.db.PlannedQueries().ListAccountTransactions(ctx, sqlcgen.ListAccountTransactionsParams{
		AccountID:  ident.UUID(query.AccountID),
		Kind:       string(query.Kind),
		FirstPage:  before.IsZero(),
		Before:     before,
		LowestID:   lowest,
		FromMoment: query.From,
		ToMoment:   query.To,
		RowLimit:   int32(query.Limit),
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

		CreditID:    ledger.ID(postgres.Deref(row.CreditID)),
		Priority:    int(row.Priority),
		ExpiresAt:   postgres.Deref(row.ExpiresAt),
		EffectiveAt: postgres.Deref(row.EffectiveAt),
	}
}

// insertEvents writes the event of a transaction. The alarms of the balance are updated afterwards.
func insertEvents(ctx context.Context, q *sqlcgen.Queries, t *ledger.Transaction, pool *leasestore.AlarmPool) error {
	if t.Amount > 0 {
		pool.ClearExhausted()
	}

	left, eventType, amount := money.Nano(pool.Left()), webhook.Credited, t.Amount
	if amount < 0 {
		eventType, amount = webhook.Debited, -amount
	}

	return changestore.InsertEvents(ctx, q, webhook.Event{
		Type: eventType, AccountID: pool.AccountID,
		Facts: webhook.Facts{
			Amount:    &amount,
			Balance:   &left,
			Kind:      string(t.Kind),
			Reference: t.Reference,
		},
	})
}
