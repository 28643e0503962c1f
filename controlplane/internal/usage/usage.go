// Package usage reads the records of finished requests, which settlement writes, and computes
// their receipts.
//
// A receipt is computed from the record's quantities and the price version of the charge, by the
// same function that computed the charge.
package usage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/project"
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
	// ErrReceipt is returned if a receipt does not add up to the charge.
	ErrReceipt = errors.New("usage: the receipt differs from the charge")
)

// RequestID identifies a request. Its text form is "req_…".
type RequestID ident.UUID

// ParseRequestID parses the text form. It returns ErrNotFound for any other text.
func ParseRequestID(text string) (RequestID, error) {
	u, err := ident.Request.Parse(text)
	if err != nil {
		return RequestID{}, ErrNotFound
	}
	return RequestID(u), nil
}

// String returns the text form.
func (id RequestID) String() string { return ident.Request.Format(ident.UUID(id)) }

// Record is the usage record of one finished request.
type Record struct {
	RequestID RequestID
	AccountID account.ID
	KeyID     key.ID
	// ProjectID is the project of the key when the request was admitted; nil for none.
	ProjectID *project.ID
	Model     string
	Format    string
	Provider  string
	Route     string
	// Credential is the name of the credential with which Route was called, when it was; empty for none.
	Credential        string
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
	Doubt             string
	PriceVersion      int64
	Cost              money.Nano
	Reservation       money.Nano
	// PriceMultiplier is the multiplier that was applied to list prices.
	PriceMultiplier price.Multiplier
	VideoJob        string
	SettledAt       time.Time
	// ProviderCost is what the provider charges the operator, by the version of its price; nil if it is unknown. The version is
	// zero if no route was called.
	ProviderCost         *money.Nano
	ProviderPriceVersion int64
	// Attempts are the routes that were tried or skipped; empty if the first one served the request.
	Attempts []Attempt
}

// ProjectName returns the text form of ProjectID; empty for none.
func (r *Record) ProjectName() string {
	if r.ProjectID == nil {
		return ""
	}
	return r.ProjectID.String()
}

// FailedCalls returns how many calls of providers failed.
func (r *Record) FailedCalls() (n int) {
	for i := range r.Attempts {
		if a := &r.Attempts[i]; a.Skipped == "" && a.Class != "" {
			n++
		}
	}
	return n
}

// FailedCallsCost returns what providers charge for the calls that did not serve the request, as far as it is known. known is false if
// no such cost is.
func (r *Record) FailedCallsCost() (cost money.Nano, known bool) {
	for i := range r.Attempts {
		if a := &r.Attempts[i]; a.ProviderCost != nil {
			cost, known = cost+*a.ProviderCost, true
		}
	}
	return cost, known
}

// Attempt is a route that was tried or skipped.
type Attempt struct {
	event.Attempt
	// ProviderCost is what the provider charges for what the call has spent without serving the request, by the version of its price;
	// nil if it is unknown, or if the call has spent nothing.
	ProviderCost         *money.Nano `json:"provider_cost"`
	ProviderPriceVersion int64       `json:"provider_price_version"`
}

// Receipt explains a charge: the sum of the lines at list prices, times the multiplier, is Cost.
type Receipt struct {
	PriceVersion int64
	Lines        []price.Item
	// ListCost is the cost at list prices.
	ListCost        money.Nano
	PriceMultiplier price.Multiplier
	Cost            money.Nano
	Reservation     money.Nano
	Rule            string
}

// Query selects records, newest request first in a list, oldest first in an export. Zero members select all.
type Query struct {
	AccountID account.ID
	ProjectID project.ID
	KeyID     key.ID
	Model     string
	// From and To bound the time at which the request started: From ≤ start < To.
	From time.Time
	To   time.Time
	// Lowest and Highest bound the id: Lowest ≤ id ≤ Highest. A zero Highest is no bound.
	Lowest, Highest RequestID
	Status          event.Status
	// Provider, Route and Credential are those of one call, which served the request or failed before.
	Provider   string
	Route      string
	Credential string
	Format     string
	// Stream and Estimated are nil for both values.
	Stream    *bool
	Estimated *bool
	MinCost   money.Nano
	// Before selects requests older than this one, After those after it.
	Before, After RequestID
	// Limit is the maximum number of records.
	Limit int
}

// Page is a part of a list of records.
type Page struct {
	Records []Record
	// Resume is the request before which the list continues, if it ended early because it had compared many records
	// with the filters; zero if it did not.
	Resume RequestID
}

// Store reads records and price sheets.
type Store interface {
	List(ctx context.Context, q Query) (Page, error)
	Get(ctx context.Context, id RequestID) (Record, error)
	// Count returns the number of records that are kept.
	Count(ctx context.Context) (int64, error)
	Sheet(ctx context.Context, version int64) (price.Sheet, error)
	// Export returns records, oldest request first. There are fewer than the limit only at the end.
	Export(ctx context.Context, q Query) ([]Record, error)
	// Exceeds reports whether there are more records than limit.
	Exceeds(ctx context.Context, q PreviewQuery, limit int) (bool, error)
	Totals(ctx context.Context, q TotalQuery) ([]Total, error)
}

// Service reads usage from a Store.
type Service struct {
	store Store
	// previews holds an element for each preview that runs; maxPreviewed bounds the records of one.
	previews     chan struct{}
	maxPreviewed int
}

// NewService returns a Service.
func NewService(store Store) *Service {
	return &Service{store, make(chan struct{}, maxPreviews), maxPreviewed}
}

// List returns records.
func (s *Service) List(ctx context.Context, q Query) (Page, error) { return s.store.List(ctx, q) }

// Export returns records in the order in which the requests started. A record that is settled late
// can belong to a page that was read already: a period is complete when its proxies have no
// unsettled usage from it.
func (s *Service) Export(ctx context.Context, q Query) ([]Record, error) {
	return s.store.Export(ctx, q)
}

// PrefixRange returns the lowest and the highest request id that begin with a text such as "req_0192f0". It returns
// ErrNotFound for a text with which no id begins.
func PrefixRange(prefix string) (lowest, highest RequestID, err error) {
	from, to, ok := ident.Request.Range(prefix)
	if !ok {
		return RequestID{}, RequestID{}, ErrNotFound
	}
	return RequestID(from), RequestID(to), nil
}

// Get returns a record with its receipt.
func (s *Service) Get(ctx context.Context, id RequestID) (Record, Receipt, error) {
	r, err := s.store.Get(ctx, id)
	if err != nil {
		return Record{}, Receipt{}, err
	}
	receipt, err := s.receipt(ctx, &r)
	return r, receipt, err
}

// checkPage is the number of records that CheckReceipts reads at a time.
const checkPage = 1000

// CheckReceipts recomputes the receipt of every record and compares it with the charge. Together
// with the ledger check this proves that receipts sum up to the ledger. Its steps are the records.
func (s *Service) CheckReceipts(ctx context.Context, progress ledger.Progress) (ledger.Check, error) {
	check := ledger.Check{Name: "receipts_equal_charges"}
	total, err := s.store.Count(ctx)
	if err != nil {
		return check, err
	}

	sheets := map[int64]*price.Sheet{}
	for q := (Query{Limit: checkPage}); ; {
		found, err := s.store.List(ctx, q)
		if err != nil {
			return check, err
		}

		page := found.Records
		for i := range page {
			r := &page[i]
			cost, err := s.recompute(ctx, r, sheets)
			if err != nil {
				return check, err
			}
			if check.Compared++; cost == r.Cost {
				continue
			}
			if check.Differing++; check.First == nil {
				check.First = &ledger.Difference{Row: "request " + r.RequestID.String(), Want: int64(cost), Got: int64(r.Cost)}
			}
		}

		progress.Report(check.Compared, max(total, check.Compared))
		if len(page) < checkPage {
			return check, nil
		}

		q.Before = page[len(page)-1].RequestID
	}
}

// recompute prices a record. A record whose price version does not exist must have cost nothing.
func (s *Service) recompute(ctx context.Context, r *Record, sheets map[int64]*price.Sheet) (money.Nano, error) {
	sheet, known := sheets[r.PriceVersion]
	if !known {
		found, err := s.store.Sheet(ctx, r.PriceVersion)
		if err != nil && !errors.Is(err, ErrNoSheet) {
			return 0, err
		}
		sheet = &found
		sheets[r.PriceVersion] = sheet
	}
	cost, err := price.Cost(&r.Usage, sheet.WithMultiplier(r.PriceMultiplier))
	if err != nil {
		return 0, nil //nolint:nilerr // see above
	}
	return cost, nil
}

func (s *Service) receipt(ctx context.Context, r *Record) (Receipt, error) {
	receipt := Receipt{
		PriceVersion:    r.PriceVersion,
		PriceMultiplier: r.PriceMultiplier.Or(price.One),
		ListCost:        r.Cost,
		Cost:            r.Cost,
		Reservation:     r.Reservation,
		Rule:            r.Rule,
	}
	if r.Usage == (price.Usage{}) && r.Cost == 0 {
		return receipt, nil // nothing billable happened, possibly before a price was chosen
	}

	sheet, err := s.store.Sheet(ctx, r.PriceVersion)
	if err != nil {
		return Receipt{}, fmt.Errorf("receipt of %s: %w", r.RequestID, err)
	}

	lines, cost, err := price.Receipt(&r.Usage, sheet.WithMultiplier(r.PriceMultiplier))
	if err == nil {
		receipt.ListCost, err = price.Cost(&r.Usage, &sheet)
	}

	switch {
	case err != nil:
		return Receipt{}, fmt.Errorf("receipt of %s: %w", r.RequestID, err)
	case cost != r.Cost:
		return Receipt{}, fmt.Errorf("%w: %s: %s against %s", ErrReceipt, r.RequestID, cost, r.Cost)
	}

	receipt.Lines = lines
	return receipt, nil
}
