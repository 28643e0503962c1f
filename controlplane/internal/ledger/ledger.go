// Package ledger implements double-entry bookkeeping: transactions are append-only, and the
// entries of each sum to zero. This package books credits, refunds and corrections; package settle
// books usage.
//
// An example: a customer pays 25.00. The transaction has two entries, +25.00 of the account and −25.00 of the operator's account
// for payments, and raises the total of the account's balance pool. Requests that cost 4.00 are settled later: package settle books
// −4.00 of the account and adds 4.00 to what the pool has settled. The balance is 21.00, by the entries and by the pool. A refund of
// 5.00 is a transaction of its own; nothing is ever changed or deleted, so that a statement of a closed month stays as it is.
//
// Invariant: the customer entries of an account sum to its balance, which is the total of its
// balance pool less the pool's settled amount.
package ledger

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/propagation"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
	"modelgateway/shared/wire"
)

// ErrReferenceTaken is returned for a reference that another transaction has.
var ErrReferenceTaken = errors.New("ledger: the reference was used for another transaction")

// ErrNoRequest is returned for a correction of a request that the account has not made, or that is
// not settled.
var ErrNoRequest = errors.New("ledger: the account has no such settled request")

// ErrOutOfRange is returned for a transaction that would make the sum of the account's payments,
// refunds and corrections exceed the limit.
var ErrOutOfRange = errors.New("ledger: the sum of credits, refunds and corrections is out of range")

// ErrOverdrawn is returned for a refund or a correction that would make the balance negative, and does not allow it.
var ErrOverdrawn = errors.New("ledger: the balance would be negative")

const (
	maxReferenceLen = 200
	maxReasonLen    = 1000
	maxAmount       = 1_000_000_000 * money.Unit
	// maxTotal bounds the sum of an account's credits, refunds and corrections. It is far enough from the bounds of an int64 that
	// a balance cannot overflow by charges, which are never rejected.
	maxTotal = 9_000_000_000 * money.Unit
)

// Kind is the kind of a transaction.
type Kind string

// The kinds of transactions.
const (
	// Payment is money that the customer has paid.
	Payment Kind = "payment"
	// Promotion is money that the customer was given for nothing.
	Promotion Kind = "promotion"
	// Refund is a credit that was paid back to the customer, with a negative amount, or the charge of a request that was
	// given back to the balance.
	Refund Kind = "refund"
	// Correction is a change of the balance by an operator, with a reason.
	Correction Kind = "correction"
	// Expiry is the part of a credit that has expired. Its amount is negative.
	Expiry Kind = "expiry"
	// Usage is the charge of a batch of finished requests.
	Usage Kind = "usage"
)

// Kinds are all kinds, in the order in which they are shown.
var Kinds = []Kind{Payment, Promotion, Refund, Correction, Expiry, Usage}

// OffsettingAccount returns the operator's ledger account that gets the opposite entry of an entry of the account. credit is the
// kind of the credit that is paid back or has expired.
func (t *Transaction) OffsettingAccount(credit Kind) string {
	kind := t.Kind
	if kind == Refund && t.Amount < 0 {
		kind = credit
	}
	switch {
	case kind == Payment:
		return "funding"
	case kind == Promotion, kind == Expiry && credit == Promotion:
		return "promotion"
	case kind == Expiry:
		return "breakage"
	}
	return "adjustment"
}

// ID identifies a transaction. Its text form is "txn_…".
type ID ident.UUID

// ParseID parses the text form.
func ParseID(text string) (ID, error) {
	u, err := ident.Transaction.Parse(text)
	return ID(u), err
}

// String returns the text form.
func (id ID) String() string { return ident.Transaction.Format(ident.UUID(id)) }

// MarshalText returns the text form.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// Transaction is a ledger transaction from the view of one account.
type Transaction struct {
	ID        ID         `json:"id"`
	AccountID account.ID `json:"account_id"`
	Kind      Kind       `json:"kind"`
	// Amount is positive if it raises the account's balance.
	Amount money.Nano `json:"amount"`
	// Reference is unique among the transactions of a kind.
	Reference string    `json:"reference"`
	Reason    string    `json:"reason,omitempty"`
	Actor     string    `json:"actor,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	// RequestID is the text form of the request that a correction or a refund refers to; empty if there is none.
	RequestID string `json:"request_id,omitempty"`
	// CreditID is the credit that a refund pays back, or that has expired; zero if there is none.
	CreditID ID `json:"credit_id,omitzero"`
	// Priority and ExpiresAt are those of a credit. Zero means DefaultPriority, and that it does not expire.
	Priority  int       `json:"priority,omitempty"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	// EffectiveAt is when a credit expired; zero if the time of booking counts.
	EffectiveAt time.Time `json:"effective_at,omitzero"`
	// Change is the change that proxies have to apply because the balance is lower than they may assume; nil if
	// there is none.
	Change *wire.KeyChange `json:"-"`
	// MayOverdraw allows a refund or a correction to make the balance negative.
	MayOverdraw bool `json:"-"`
}

// Same reports whether two transactions are equal, except for their ids, times and actors.
func (t *Transaction) Same(other *Transaction) bool {
	return t.AccountID == other.AccountID && t.Kind == other.Kind && t.Amount == other.Amount &&
		t.Reference == other.Reference && t.Reason == other.Reason && t.RequestID == other.RequestID && t.CreditID == other.CreditID &&
		cmp.Or(t.Priority, DefaultPriority) == cmp.Or(other.Priority, DefaultPriority) && t.ExpiresAt.Equal(other.ExpiresAt)
}

// IsCredit reports whether the transaction gives the account a credit.
func (t *Transaction) IsCredit() bool { return t.Amount > 0 && t.Kind != Usage }

// Credit returns the credit that the transaction gives.
func (t *Transaction) Credit() *Credit {
	return &Credit{
		ID:        t.ID,
		AccountID: t.AccountID,
		Kind:      t.Kind,
		Reference: t.Reference,
		Amount:    t.Amount,
		Priority:  cmp.Or(t.Priority, DefaultPriority),
		ExpiresAt: t.ExpiresAt,
		CreatedAt: t.CreatedAt,
	}
}

// Fits returns ErrOutOfRange if adding the amount to total, the sum of the account's earlier
// credits, refunds and corrections, exceeds the limit.
func (t *Transaction) Fits(total money.Nano) error {
	sum, err := money.Add(total, t.Amount)
	if err != nil || (t.Amount > 0 && sum > maxTotal) || (t.Amount < 0 && sum < -maxTotal) {
		return ErrOutOfRange
	}
	return nil
}

// Covered returns ErrOverdrawn if the transaction takes more than the balance has, and does not allow it.
func (t *Transaction) Covered(balance money.Nano) error {
	if t.Amount < 0 && balance < -t.Amount && !t.MayOverdraw {
		return ErrOverdrawn
	}
	return nil
}

// maxPriority is the highest number of a priority.
const maxPriority = 100

// Validate reports all invalid fields as validation.Errors.
func (t *Transaction) Validate() error {
	var invalid validation.Errors
	switch {
	case (t.Kind == Payment || t.Kind == Promotion) && t.Amount <= 0:
		invalid.Add("amount", "must be positive for a %s", t.Kind)
	case t.Amount == 0:
		invalid.Add("amount", "must not be zero")
	case t.Amount > maxAmount || t.Amount < -maxAmount:
		invalid.Add("amount", "must be at most %s", maxAmount)
	}

	if t.Reference == "" || utf8.RuneCountInString(t.Reference) > maxReferenceLen {
		invalid.Add("reference", "must have 1 to %d characters", maxReferenceLen)
	}
	if t.Kind == Correction && strings.TrimSpace(t.Reason) == "" {
		invalid.Add("reason", "is required for a correction")
	}
	if utf8.RuneCountInString(t.Reason) > maxReasonLen {
		invalid.Add("reason", "is longer than %d characters", maxReasonLen)
	}

	t.validateRefund(&invalid)
	t.validateCredit(&invalid)
	return invalid.Err()
}

// validateRefund checks what a transaction refers to.
func (t *Transaction) validateRefund(invalid *validation.Errors) {
	if t.RequestID != "" {
		if _, err := ident.Request.Parse(t.RequestID); err != nil || (t.Kind != Correction && t.Kind != Refund) {
			invalid.Add("request_id", "must be the id of a request, and is only allowed for corrections and refunds")
		}
	}

	isRefund, named := t.Kind == Refund, t.CreditID != ID{}
	switch {
	case named && !isRefund:
		invalid.Add("credit_id", "is only allowed for refunds")
	case isRefund && t.Amount < 0 && (!named || t.RequestID != ""):
		invalid.Add("credit_id", "must name the credit that is paid back, and no request, if the amount is negative")
	case isRefund && t.Amount > 0 && (named || t.RequestID == ""):
		invalid.Add("request_id", "must name the request whose charge is given back, and no credit, if the amount is positive")
	}

	if t.MayOverdraw && (t.Kind == Payment || t.Kind == Promotion) {
		invalid.Add("allow_negative_balance", "is only allowed for refunds and corrections")
	}
}

// validateCredit checks what only credits have.
func (t *Transaction) validateCredit(invalid *validation.Errors) {
	if t.Priority < 0 || t.Priority > maxPriority {
		invalid.Add("priority", "must be between 1 and %d", maxPriority)
	}
	if t.Amount > 0 {
		return
	}
	if !t.ExpiresAt.IsZero() {
		invalid.Add("expires_at", "is only allowed if the amount is positive")
	}
	if cmp.Or(t.Priority, DefaultPriority) != DefaultPriority {
		invalid.Add("priority", "is only allowed if the amount is positive")
	}
}

// Query selects an account's transactions, newest first.
type Query struct {
	AccountID account.ID
	// Kind selects transactions of a kind; empty: of every kind.
	Kind Kind
	// From and To select transactions by when they were booked, To exclusively; nil: no bound.
	From, To *time.Time
	// Before selects transactions older than this one; the zero ID starts with the newest.
	Before ID
	// Limit is the maximum number of transactions.
	Limit int
}

// CreditQuery selects credits.
type CreditQuery struct {
	Query
	// State and Reference select those in a state and with a reference; empty: all.
	State     CreditState
	Reference string
	// ExpiresBefore selects those that expire before a time; nil: all.
	ExpiresBefore *time.Time
}

// CreditStore stores credits.
type CreditStore interface {
	// Credits returns the credits of an account, newest first, with all charges attributed, and what none has covered.
	Credits(ctx context.Context, q CreditQuery) ([]Credit, money.Nano, error)
	// ExpireCredits books the expiry of credits until none is due, of the accounts that come from waiting first. It passes each
	// change that proxies have to apply to booked. An error with one account does not stop the others.
	ExpireCredits(ctx context.Context, waiting <-chan ident.UUID, booked func(wire.KeyChange)) error
	// ReleaseCredits books as expired what of expired credits is held no longer.
	ReleaseCredits(ctx context.Context) error
}

// Store stores the ledger. Each method is one database transaction, or several that are independent.
type Store interface {
	CreditStore
	// Post books a payment, a refund or a correction and changes the total of the account's balance pool. If its kind
	// and reference exist already, it returns that transaction, and posted is false. The errors are ErrNoRequest, ErrNoCredit,
	// ErrRefundTooLarge, ErrOutOfRange and ErrOverdrawn.
	Post(ctx context.Context, t Transaction) (booked Transaction, posted bool, err error)
	List(ctx context.Context, q Query) ([]Transaction, error)
	// Corrections returns the corrections and refunds of a request, oldest first.
	Corrections(ctx context.Context, request ident.UUID) ([]Transaction, error)
	Entries(ctx context.Context, q EntryQuery) ([]Entry, error)
	Balance(ctx context.Context, id account.ID) (account.Balance, error)
	// Check checks all invariants, which are its steps. It skips usage records of requests that started before the day
	// of since; the zero time skips none.
	Check(ctx context.Context, since time.Time, progress Progress) (Report, error)
	// Books sums the entries up.
	Books(ctx context.Context, p Period) (Books, error)
	// CheckChanged is an incremental check: it adds what was written since the last one to the sums that were
	// verified then.
	CheckChanged(ctx context.Context) (Report, error)
	// Forget deletes the sums that CheckChanged has verified.
	Forget(ctx context.Context) error
}

// Config holds the dependencies and settings of a Service.
type Config struct {
	Store Store
	// Announcer informs the proxies that a balance is lower; nil disables that.
	Announcer propagation.Announcer
	// Holdings may be nil: then Balance.Reserved is the amount that the store reports.
	Holdings account.Holdings
	// Waiting are accounts whose requests for units wait until ExpireCredits has booked what has expired of them; nil for none.
	Waiting <-chan ident.UUID
	Log     *slog.Logger
	// ConfirmTimeout bounds how long a refund or a correction waits for the proxies; zero does not wait.
	ConfirmTimeout time.Duration
}

// Service manages the ledger.
type Service struct{ cfg Config }

// NewService returns a Service.
func NewService(cfg Config) *Service { return &Service{cfg} }

// Post books a payment, a refund or a correction. It is idempotent by kind and reference: an equal
// transaction returns the first one, and posted is false; a different one gives ErrReferenceTaken.
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

// announce makes the proxies return idle units. Proxies that do not confirm the change in time
// receive it with their next heartbeat.
func (s *Service) announce(ctx context.Context, c *wire.KeyChange) {
	s.announceWithin(ctx, c, s.cfg.ConfirmTimeout)
}

func (s *Service) announceWithin(ctx context.Context, c *wire.KeyChange, timeout time.Duration) {
	if c == nil || s.cfg.Announcer == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if _, err := s.cfg.Announcer.Announce(ctx, *c); err != nil {
		s.cfg.Log.WarnContext(ctx, "announcing a lower balance failed", "account_id", c.Account, "rev", c.Revision, "error", err)
	}
}

// List returns the transactions of an account.
func (s *Service) List(ctx context.Context, q Query) ([]Transaction, error) {
	return s.cfg.Store.List(ctx, q)
}

// Credits returns the credits of an account, newest first, and what none of them has covered.
func (s *Service) Credits(ctx context.Context, q CreditQuery) ([]Credit, money.Nano, error) {
	return s.cfg.Store.Credits(ctx, q)
}

// expiryConfirmTimeout bounds how long an announcement of ExpireCredits waits for proxies, expiryAnnouncements how many wait at once:
// the next expiry must not wait for a silent proxy.
const (
	expiryConfirmTimeout = 100 * time.Millisecond
	expiryAnnouncements  = 64
)

// ExpireCredits books what has expired, and makes the proxies return idle units. Those that do not confirm in time receive the
// change with their next heartbeat: their units are not granted again in any case.
func (s *Service) ExpireCredits(ctx context.Context) error {
	var told sync.WaitGroup
	running := make(chan struct{}, expiryAnnouncements)
	err := s.cfg.Store.ExpireCredits(ctx, s.cfg.Waiting, func(c wire.KeyChange) {
		running <- struct{}{}
		told.Go(func() {
			s.announceWithin(ctx, &c, expiryConfirmTimeout)
			<-running
		})
	})
	told.Wait()
	return err
}

// ReleaseCredits books as expired what of expired credits requests have not needed.
func (s *Service) ReleaseCredits(ctx context.Context) error { return s.cfg.Store.ReleaseCredits(ctx) }

// Corrections returns the corrections and refunds of a request, oldest first. The usage record and the receipt
// of the request stay unchanged.
func (s *Service) Corrections(ctx context.Context, request ident.UUID) ([]Transaction, error) {
	return s.cfg.Store.Corrections(ctx, request)
}

// Balance returns the balance of an account, or account.ErrNotFound. It asks the proxies for the
// reserved amount.
func (s *Service) Balance(ctx context.Context, id account.ID) (account.Balance, error) {
	b, err := s.cfg.Store.Balance(ctx, id)
	if err != nil {
		return account.Balance{}, err
	}
	return b.AskProxies(ctx, id, s.cfg.Holdings), nil
}

// Check compares ledger, pools and all usage records with each other. The next CheckChanged starts
// without verified sums.
func (s *Service) Check(ctx context.Context, progress Progress) (Report, error) {
	start := time.Now()
	report, err := s.cfg.Store.Check(ctx, time.Time{}, progress)
	if err != nil {
		return Report{}, err
	}
	report.Took = time.Since(start)
	return report, s.cfg.Store.Forget(ctx)
}

// CheckChanged compares what was written since the last check. Pools and leases are always
// compared as a whole.
func (s *Service) CheckChanged(ctx context.Context) (Report, error) {
	start := time.Now()
	report, err := s.cfg.Store.CheckChanged(ctx)
	report.Took = time.Since(start)
	return report, err
}

// recently is the age of the oldest usage records that CheckRecent reads.
const recently = 48 * time.Hour

// CheckRecent is Check without the usage records of old requests, whose number would load the
// database.
func (s *Service) CheckRecent(ctx context.Context) (Report, error) {
	start := time.Now()
	report, err := s.cfg.Store.Check(ctx, time.Now().Add(-recently), nil)
	report.Took = time.Since(start)
	return report, err
}
