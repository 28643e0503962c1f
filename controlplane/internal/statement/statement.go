// Package statement computes the account statement: the balance at the beginning of a period,
// everything that changed it, and the balance at the end.
//
// Invariants: opening + payments + promotions + refunds + corrections + expired − usage = closing; the closing balance of a period
// is the opening balance of the next; each figure is a sum of ledger entries. Usage is taken from
// the daily totals, so a statement can be made after the usage records were dropped, unless its days are those of a zone
// that is not UTC.
package statement

import (
	"context"
	"errors"
	"fmt"
	"time"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/usage"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/money"
)

// ErrTooLong is returned for a statement with more than MaxLines lines.
var ErrTooLong = errors.New("statement: too many lines")

// MaxLines bounds the lines of a statement, of each kind.
const MaxLines = 20_000

// Period is a span of days: From ≤ day < To. They are midnights of UTC, whatever the zone is.
type Period struct{ From, To time.Time }

// Query selects a statement.
type Query struct {
	AccountID account.ID
	Period    Period
	// Zone is the zone of all days; nil is UTC.
	Zone *time.Location
	// By selects the properties by which the usage lines are grouped.
	By usage.Group
}

// Statement is the statement of an account for a period.
type Statement struct {
	AccountID account.ID
	Period    Period
	// Final reports that nothing can be booked in the period any more.
	Final   bool
	Opening money.Nano
	// Payments, Promotions, Refunds, Corrections and Expired are the sums of Transactions; Usage is the sum of Lines.
	Payments    money.Nano
	Promotions  money.Nano
	Refunds     money.Nano
	Corrections money.Nano
	Expired     money.Nano
	Usage       money.Nano
	Closing     money.Nano
	// Transactions are the credits, refunds and corrections, oldest first.
	Transactions []ledger.Transaction
	// Lines are the charges, by the day of the booking.
	Lines []usage.Total
}

// Entries is what a Store reads for a statement in one snapshot.
type Entries struct {
	Final        bool
	Opening      money.Nano
	Transactions []ledger.Transaction
	Lines        []usage.Total
}

// Store reads the ledger of a period.
type Store interface {
	// Entries returns at most limit transactions and limit lines.
	Entries(ctx context.Context, q Query, limit int) (Entries, error)
}

// Service makes statements.
type Service struct{ store Store }

// NewService returns a Service.
func NewService(store Store) *Service { return &Service{store} }

// longest is the longest period of a statement.
const longest = 367 * 24 * time.Hour

// Moments returns when the period begins and ends.
func (q *Query) Moments() (from, to time.Time) {
	if usage.IsUTC(q.Zone) {
		return q.Period.From, q.Period.To
	}
	return usage.StartOfDay(q.Period.From, q.Zone), usage.StartOfDay(q.Period.To, q.Zone)
}

func (q *Query) validate() error {
	var invalid validation.Errors
	switch p := q.Period; {
	case !p.To.After(p.From):
		invalid.Add("to", "must be after from")
	case p.To.Sub(p.From) > longest:
		invalid.Add("to", "must be at most a year after from")
	case !usage.IsUTC(q.Zone) && p.To.Sub(p.From) > usage.LongestInZone*24*time.Hour:
		invalid.Add("to", "must be at most %d days after from with a time_zone other than UTC", usage.LongestInZone)
	}
	return invalid.Err()
}

// Make returns a statement.
func (s *Service) Make(ctx context.Context, q Query) (Statement, error) {
	if err := q.validate(); err != nil {
		return Statement{}, err
	}

	found, err := s.store.Entries(ctx, q, MaxLines+1)
	if err != nil {
		return Statement{}, err
	}
	if len(found.Transactions) > MaxLines || len(found.Lines) > MaxLines {
		return Statement{}, ErrTooLong
	}

	st := Statement{
		AccountID:    q.AccountID,
		Period:       q.Period,
		Final:        found.Final,
		Opening:      found.Opening,
		Transactions: found.Transactions,
		Lines:        found.Lines,
	}
	if err := st.add(); err != nil {
		return Statement{}, fmt.Errorf("statement of %s: %w", q.AccountID, err)
	}

	return st, nil
}

// add computes the sums and the closing balance.
func (s *Statement) add() error {
	var err error
	grow := func(sum *money.Nano, amount money.Nano) {
		if err == nil {
			*sum, err = money.Add(*sum, amount)
		}
	}

	for i := range s.Transactions {
		grow(s.sumOf(s.Transactions[i].Kind), s.Transactions[i].Amount)
	}

	for i := range s.Lines {
		grow(&s.Usage, s.Lines[i].Cost)
	}

	s.Closing = s.Opening
	for _, amount := range []money.Nano{s.Payments, s.Promotions, s.Refunds, s.Corrections, s.Expired, -s.Usage} {
		grow(&s.Closing, amount)
	}

	return err
}

// sumOf returns the sum that transactions of a kind belong to.
func (s *Statement) sumOf(kind ledger.Kind) *money.Nano {
	switch kind {
	case ledger.Payment:
		return &s.Payments
	case ledger.Promotion:
		return &s.Promotions
	case ledger.Refund:
		return &s.Refunds
	case ledger.Expiry:
		return &s.Expired
	default:
		return &s.Corrections
	}
}
