// Package ledger owns the books: double entry, append-only, every transaction
// sums to zero. Money enters an account by a credit or a correction, booked
// here, and leaves it by usage, booked by package settle.
//
// Invariant: an account's customer entries sum to its balance, which is the
// total of its balance pool minus what is settled on it.
package ledger

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/propagation"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
	"modelgateway/shared/wire"
)

// ErrReferenceTaken is returned for a reference that has been used for
// something else.
var ErrReferenceTaken = errors.New("ledger: the reference was used for another transaction")

// ErrNoRequest is returned for a correction about a request that the account
// has not made, or that is not settled.
var ErrNoRequest = errors.New("ledger: the account has no such settled request")

// ErrOutOfRange is returned for a booking after which an account had been given,
// or had taken away, more in all than can be counted.
var ErrOutOfRange = errors.New("ledger: the account would be given more in all than can be counted")

const (
	maxReferenceLen = 200
	maxReasonLen    = 1000
	maxAmount       = 1_000_000_000 * money.Unit
	// maxTotal bounds what an account is given in all its life, which balances are reckoned from: it leaves room below
	// the end of an int64 for costs, which are charged in any case.
	maxTotal = 9_000_000_000 * money.Unit
)

// Kind is what a transaction is about.
type Kind string

// The kinds of transactions.
const (
	// Credit is money paid in.
	Credit Kind = "credit"
	// Correction is money given or taken by the operator, with a reason.
	Correction Kind = "correction"
	// Usage is the charge of a batch of finished requests.
	Usage Kind = "usage"
)

// ID identifies a transaction. Its text form is "txn_…".
type ID ident.UUID

// ParseID reads the text form.
func ParseID(text string) (ID, error) {
	u, err := ident.Transaction.Parse(text)
	return ID(u), err
}

// String is the text form.
func (id ID) String() string { return ident.Transaction.Format(ident.UUID(id)) }

// MarshalText writes the text form.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// Transaction is a booking as one account sees it.
type Transaction struct {
	ID        ID         `json:"id"`
	AccountID account.ID `json:"account_id"`
	Kind      Kind       `json:"kind"`
	// Amount is positive in the account's favour.
	Amount money.Nano `json:"amount"`
	// Reference is unique among the transactions of a kind.
	Reference string    `json:"reference"`
	Reason    string    `json:"reason,omitempty"`
	Actor     string    `json:"actor,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	// RequestID is the text form of the request that a correction is about; empty if it is about none.
	RequestID string `json:"request_id,omitempty"`
	// Change is what proxies must apply, because less is left than they may hold idle; nil if there is nothing.
	Change *wire.KeyChange `json:"-"`
}

// Same tells whether two transactions say the same, whoever booked them.
func (t *Transaction) Same(other *Transaction) bool {
	return t.AccountID == other.AccountID && t.Kind == other.Kind && t.Amount == other.Amount &&
		t.Reference == other.Reference && t.Reason == other.Reason && t.RequestID == other.RequestID
}

// Fits returns ErrOutOfRange if an account that has been given a total so far
// cannot be given the amount, too.
func (t *Transaction) Fits(total money.Nano) error {
	sum, err := money.Add(total, t.Amount)
	if err != nil || (t.Amount > 0 && sum > maxTotal) || (t.Amount < 0 && sum < -maxTotal) {
		return ErrOutOfRange
	}
	return nil
}

// Validate tells everything that is wrong with a booking.
func (t *Transaction) Validate() error {
	var invalid validation.Errors
	switch {
	case t.Kind == Credit && t.Amount <= 0:
		invalid.Add("amount", "must be positive for a top-up")
	case t.Amount == 0:
		invalid.Add("amount", "must not be zero")
	case t.Amount > maxAmount || t.Amount < -maxAmount:
		invalid.Add("amount", "must be at most %s", maxAmount)
	}
	if t.Reference == "" || utf8.RuneCountInString(t.Reference) > maxReferenceLen {
		invalid.Add("reference", "must have 1 to %d characters", maxReferenceLen)
	}
	if t.Kind == Correction && strings.TrimSpace(t.Reason) == "" {
		invalid.Add("reason", "is needed for a correction")
	}
	if t.RequestID != "" {
		if _, err := ident.Request.Parse(t.RequestID); err != nil || t.Kind != Correction {
			invalid.Add("request_id", "must be the id of a request, of a correction")
		}
	}
	if utf8.RuneCountInString(t.Reason) > maxReasonLen {
		invalid.Add("reason", "is longer than %d characters", maxReasonLen)
	}
	return invalid.Err()
}

// Query selects an account's transactions, newest first.
type Query struct {
	AccountID account.ID
	// Before takes transactions older than this one; the zero ID starts at the newest.
	Before ID
	// Limit is the greatest number of transactions.
	Limit int
}

// Store keeps the books. Each method is one transaction.
type Store interface {
	// Post books a credit or correction and raises the account's balance pool by it. If its kind and reference
	// have been booked already, that transaction is returned and posted is false.
	// A request that is not the account's gives ErrNoRequest, an amount that does not fit ErrOutOfRange.
	Post(ctx context.Context, t Transaction) (booked Transaction, posted bool, err error)
	List(ctx context.Context, q Query) ([]Transaction, error)
	// Corrections returns what was booked about a request, oldest first.
	Corrections(ctx context.Context, request ident.UUID) ([]Transaction, error)
	Entries(ctx context.Context, q EntryQuery) ([]Entry, error)
	Balance(ctx context.Context, id account.ID) (account.Balance, error)
	// Check reads all invariants. Usage records of requests begun before the day of since are left out; the zero time
	// takes all.
	Check(ctx context.Context, since time.Time) (Report, error)
	// CheckChanged is Check over sums that were verified before and kept, and what was written since.
	CheckChanged(ctx context.Context) (Report, error)
	// Forget drops the kept sums.
	Forget(ctx context.Context) error
}

// Config is what a Service is made of.
type Config struct {
	Store Store
	// Announcer tells proxies that an account has less; nil tells nobody.
	Announcer propagation.Announcer
	// Holdings knows what running requests hold; nil leaves the reserve as the store has it.
	Holdings account.Holdings
	Log      *slog.Logger
	// ConfirmTimeout is how long a correction waits for the proxies; zero does not wait.
	ConfirmTimeout time.Duration
}

// Service is the books' rules over a Store.
type Service struct{ cfg Config }

// NewService returns a Service.
func NewService(cfg Config) *Service { return &Service{cfg} }

// Post books a credit or correction. It is idempotent by kind and reference:
// the same again returns the first booking, with posted false; anything else
// under the reference gives ErrReferenceTaken.
func (s *Service) Post(ctx context.Context, t Transaction) (booked Transaction, posted bool, err error) {
	if err := t.Validate(); err != nil {
		return Transaction{}, false, err
	}
	booked, posted, err = s.cfg.Store.Post(ctx, t)
	switch {
	case err != nil:
		return Transaction{}, false, err
	case !posted && !booked.Same(&t):
		return Transaction{}, false, ErrReferenceTaken
	}
	s.announce(ctx, booked.Change)
	return booked, posted, nil
}

// announce has proxies give back what they hold idle. If they do not confirm
// it in time, they learn of it when they renew.
func (s *Service) announce(ctx context.Context, c *wire.KeyChange) {
	if c == nil || s.cfg.Announcer == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ConfirmTimeout)
	defer cancel()
	if _, err := s.cfg.Announcer.Announce(ctx, *c); err != nil {
		s.cfg.Log.WarnContext(ctx, "correction not announced", "account_id", c.Account, "rev", c.Revision, "error", err)
	}
}

// List returns the transactions of an account.
func (s *Service) List(ctx context.Context, q Query) ([]Transaction, error) {
	return s.cfg.Store.List(ctx, q)
}

// Corrections returns what was booked about a request, oldest first. Its own
// record and receipt stay as they were.
func (s *Service) Corrections(ctx context.Context, request ident.UUID) ([]Transaction, error) {
	return s.cfg.Store.Corrections(ctx, request)
}

// Balance returns an account's money, or account.ErrNotFound. Its reserve is
// asked of the proxies.
func (s *Service) Balance(ctx context.Context, id account.ID) (account.Balance, error) {
	b, err := s.cfg.Store.Balance(ctx, id)
	if err != nil {
		return account.Balance{}, err
	}
	return b.Ask(ctx, id, s.cfg.Holdings), nil
}

// Check compares the books, the pools and the usage records with one another,
// all of them. What CheckChanged goes by is made anew afterwards.
func (s *Service) Check(ctx context.Context) (Report, error) {
	start := time.Now()
	report, err := s.cfg.Store.Check(ctx, time.Time{})
	if err != nil {
		return Report{}, err
	}
	report.Took = time.Since(start)
	return report, s.cfg.Store.Forget(ctx)
}

// CheckChanged compares what was written since it was last compared. Pools and
// leases are compared whole.
func (s *Service) CheckChanged(ctx context.Context) (Report, error) {
	start := time.Now()
	report, err := s.cfg.Store.CheckChanged(ctx)
	report.Took = time.Since(start)
	return report, err
}

// recently is how far back CheckRecent reads usage records.
const recently = 48 * time.Hour

// CheckRecent is Check but for the records of requests that were begun long
// ago: reading those again and again would keep the database busy.
func (s *Service) CheckRecent(ctx context.Context) (Report, error) {
	start := time.Now()
	report, err := s.cfg.Store.Check(ctx, time.Now().Add(-recently))
	report.Took = time.Since(start)
	return report, err
}
