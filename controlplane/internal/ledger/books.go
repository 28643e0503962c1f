package ledger

import (
	"context"
	"time"

	"modelgateway/shared/money"
)

// Names of the ledger accounts, in the order in which they are shown.
var accountNames = []string{"customer", "funding", "promotion", "adjustment", "breakage", "revenue"}

// Period bounds the time of booking: From ≤ time < To. A zero time is no bound.
type Period struct{ From, To time.Time }

// Book is the sum of the entries of one ledger account by the kind of their transactions.
type Book struct {
	Name        string
	Payments    money.Nano
	Promotions  money.Nano
	Refunds     money.Nano
	Corrections money.Nano
	// Expired is what has expired of credits.
	Expired money.Nano
	Usage   money.Nano
}

// Total returns the sum of all entries.
func (b *Book) Total() money.Nano {
	return b.Payments + b.Promotions + b.Refunds + b.Corrections + b.Expired + b.Usage
}

// Books are the ledger accounts. Their totals sum to zero.
type Books struct {
	Books []Book
	// Negative is how many accounts have a balance below zero now, and Overdrawn by how much in all.
	Negative  int64
	Overdrawn money.Nano
}

// NewBooks returns the books without entries.
func NewBooks() Books {
	var b Books
	for _, name := range accountNames {
		b.Books = append(b.Books, Book{Name: name})
	}
	return b
}

// Add adds the sum of the entries of a ledger account and kind.
func (b *Books) Add(name string, kind Kind, amount money.Nano) {
	for i := range b.Books {
		book := &b.Books[i]
		if book.Name != name {
			continue
		}
		switch kind {
		case Payment:
			book.Payments += amount
		case Promotion:
			book.Promotions += amount
		case Refund:
			book.Refunds += amount
		case Correction:
			book.Corrections += amount
		case Expiry:
			book.Expired += amount
		case Usage:
			book.Usage += amount
		}
	}
}

// Sum returns the sum of all books, which is zero unless the ledger is damaged.
func (b *Books) Sum() (sum money.Nano) {
	for i := range b.Books {
		sum += b.Books[i].Total()
	}
	return sum
}

// Books sums the entries of a period up.
func (s *Service) Books(ctx context.Context, p Period) (Books, error) {
	return s.cfg.Store.Books(ctx, p)
}
