package ledger

import (
	"context"
	"time"

	"modelgateway/controlplane/internal/account"
	"modelgateway/shared/money"
)

// Entry is one entry of a ledger transaction.
type Entry struct {
	TransactionID ID
	// Line numbers the entries of a transaction from 1.
	Line int
	Kind Kind
	// LedgerAccount is "customer" for the side of the customer's account; the others belong to the
	// operator.
	LedgerAccount string
	// AccountID is zero unless LedgerAccount is "customer".
	AccountID account.ID
	Amount    money.Nano
	Reference string
	Reason    string
	Actor     string
	// RequestID is the text form of the request that a correction or a refund refers to.
	RequestID string
	// CreditID is the credit that was paid back or has expired; zero if there is none.
	CreditID ID
	// Priority and ExpiresAt are those of a credit; zero for another transaction, ExpiresAt also for one that does not expire.
	Priority  int
	ExpiresAt time.Time
	// EffectiveAt is when a credit expired; zero if the time of booking counts.
	EffectiveAt time.Time
	CreatedAt   time.Time
}

// OfCredit reports whether the transaction is a credit. The entries of both sides are.
func (e *Entry) OfCredit() bool {
	raises := e.Amount > 0
	if e.LedgerAccount != "customer" {
		raises = e.Amount < 0
	}
	return raises && e.Kind != Usage
}

// EntryQuery selects entries in a fixed order. Zero members select all.
type EntryQuery struct {
	AccountID account.ID
	Kind      Kind
	// From and To bound the booking time: From ≤ booked < To.
	From time.Time
	To   time.Time
	// After and AfterLine select the entries after this one; the zero ID starts with the first.
	After     ID
	AfterLine int
	// Limit is the maximum number of entries.
	Limit int
}

// Entries returns a page of entries: all entries in the order of booking, or those of one account
// in the order of their transaction ids.
func (s *Service) Entries(ctx context.Context, q EntryQuery) ([]Entry, error) {
	return s.cfg.Store.Entries(ctx, q)
}
