package usage

import (
	"context"
	"time"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/key"
	"modelgateway/shared/money"
)

// Group says what totals are told apart by.
type Group struct {
	Day, Account, Key, Model bool
}

// Total is the sum of usage of a group. What the group does not tell apart is
// zero.
type Total struct {
	// Day is the UTC day on which the requests began.
	Day       time.Time
	AccountID account.ID
	KeyID     key.ID
	Model     string
	Sums
}

// Sums are what a total adds up. Tokens are counted as in price.Usage, but for
// CacheWrite, which takes all lifetimes together.
type Sums struct {
	Requests int64
	// Estimated is how many of Requests were billed by a count of our own.
	Estimated          int64
	Input              int64
	CachedInput        int64
	CacheWrite         int64
	Output             int64
	Reasoning          int64
	AudioIn            int64
	AudioOut           int64
	ImageIn            int64
	ImageOut           int64
	Images             int64
	Seconds            int64
	ServerToolRequests int64
	Cost               money.Nano
}

// TotalQuery selects usage to be added up. Zero members select all.
type TotalQuery struct {
	By        Group
	AccountID account.ID
	KeyID     key.ID
	Model     string
	// From and To are UTC days: From ≤ day < To.
	From time.Time
	To   time.Time
	// Booked goes by the day of the booking instead of that of the request. It is for a single account.
	Booked bool
	// After takes the groups behind that of a total; nil starts at the first.
	After *Total
	// Limit is the greatest number of totals.
	Limit int
}

// Totals returns sums of usage, ordered by day, account, key and model. They
// are kept up to date by settlement, and outlive the records.
func (s *Service) Totals(ctx context.Context, q TotalQuery) ([]Total, error) {
	return s.store.Totals(ctx, q)
}
