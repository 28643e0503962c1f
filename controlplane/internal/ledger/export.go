package ledger

import (
	"context"
	"time"

	"modelgateway/controlplane/internal/account"
	"modelgateway/shared/money"
)

// Entry is one line of a transaction, in one book.
type Entry struct {
	TransactionID ID
	// Line counts the entries of a transaction, from 1.
	Line int
	Kind Kind
	// Book is "customer" for the account's side; the others are the operator's own.
	Book string
	// AccountID is zero in the operator's books.
	AccountID account.ID
	Amount    money.Nano
	Reference string
	Reason    string
	Actor     string
	// RequestID is the text form of the request that a correction is about.
	RequestID string
	CreatedAt time.Time
}

// EntryQuery selects entries in a fixed order. Zero members select all.
type EntryQuery struct {
	AccountID account.ID
	// From and To bound the time of booking: From ≤ booked < To.
	From time.Time
	To   time.Time
	// After takes entries behind this one; the zero ID starts at the first.
	After     ID
	AfterLine int
	// Limit is the greatest number of entries.
	Limit int
}

// Entries returns entries page by page: those of all books in the order of
// booking, or those of an account in the order of their transactions' ids.
func (s *Service) Entries(ctx context.Context, q EntryQuery) ([]Entry, error) {
	return s.cfg.Store.Entries(ctx, q)
}
