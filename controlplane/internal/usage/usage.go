// Package usage owns the reading of finished requests: the records that
// settlement wrote, and their receipts.
//
// A receipt is made anew from the record's quantities and the price version
// that it was charged with, by the same function that computed the charge.
package usage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/key"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
	"modelgateway/shared/price"
)

// The errors of this package.
var (
	ErrNotFound = errors.New("usage: no such request, or it is not settled yet")
	// ErrNoSheet is returned by a Store for a price version that does not exist.
	ErrNoSheet = errors.New("usage: no such price version")
	// ErrReceipt is returned when a receipt does not add up to the charge.
	ErrReceipt = errors.New("usage: the receipt differs from the charge")
)

// RequestID identifies a request. Its text form is "req_…".
type RequestID ident.UUID

// ParseRequestID reads the text form; any text that is none gives ErrNotFound,
// since it names no request.
func ParseRequestID(text string) (RequestID, error) {
	u, err := ident.Request.Parse(text)
	if err != nil {
		return RequestID{}, ErrNotFound
	}
	return RequestID(u), nil
}

// String is the text form.
func (id RequestID) String() string { return ident.Request.Format(ident.UUID(id)) }

// Record is one finished request.
type Record struct {
	RequestID         RequestID
	AccountID         account.ID
	KeyID             key.ID
	Model             string
	Format            string
	Provider          string
	Route             string
	ProviderRequestID string
	Status            event.Status
	HTTPStatus        int
	Stream            bool
	StartedAt         time.Time
	FinishedAt        time.Time
	FirstByteMS       int64
	Usage             price.Usage
	Rule              string
	Estimated         bool
	PriceVersion      int64
	Cost              money.Nano
	Reserve           money.Nano
	VideoJob          string
	SettledAt         time.Time
}

// Receipt says how a charge came about.
type Receipt struct {
	PriceVersion int64
	Lines        []price.Item
	Cost         money.Nano
	Reserve      money.Nano
	Rule         string
}

// Query selects records, newest request first. Zero members select all.
type Query struct {
	AccountID account.ID
	KeyID     key.ID
	Model     string
	// From and To bound the time at which the request began: From ≤ begun < To.
	From time.Time
	To   time.Time
	// Before takes requests older than this one.
	Before RequestID
	// Limit is the greatest number of records.
	Limit int
}

// Store reads records and price sheets.
type Store interface {
	List(ctx context.Context, q Query) ([]Record, error)
	Get(ctx context.Context, id RequestID) (Record, error)
	Sheet(ctx context.Context, version int64) (price.Sheet, error)
}

// Service reads usage over a Store.
type Service struct{ store Store }

// NewService returns a Service.
func NewService(store Store) *Service { return &Service{store} }

// List returns records.
func (s *Service) List(ctx context.Context, q Query) ([]Record, error) { return s.store.List(ctx, q) }

// Get returns a record with its receipt.
func (s *Service) Get(ctx context.Context, id RequestID) (Record, Receipt, error) {
	r, err := s.store.Get(ctx, id)
	if err != nil {
		return Record{}, Receipt{}, err
	}
	receipt, err := s.receipt(ctx, &r)
	return r, receipt, err
}

func (s *Service) receipt(ctx context.Context, r *Record) (Receipt, error) {
	receipt := Receipt{PriceVersion: r.PriceVersion, Cost: r.Cost, Reserve: r.Reserve, Rule: r.Rule}
	if r.Usage == (price.Usage{}) && r.Cost == 0 {
		return receipt, nil // nothing billable happened, perhaps before a price was chosen
	}
	sheet, err := s.store.Sheet(ctx, r.PriceVersion)
	if err != nil {
		return Receipt{}, fmt.Errorf("receipt of %s: %w", r.RequestID, err)
	}
	lines, cost, err := price.Receipt(&r.Usage, &sheet)
	switch {
	case err != nil:
		return Receipt{}, fmt.Errorf("receipt of %s: %w", r.RequestID, err)
	case cost != r.Cost:
		return Receipt{}, fmt.Errorf("%w: %s: %s against %s", ErrReceipt, r.RequestID, cost, r.Cost)
	}
	receipt.Lines = lines
	return receipt, nil
}
