package usage

import (
	"context"
	"time"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/project"
	"modelgateway/shared/money"
)

// Group selects the properties by which usage is grouped.
type Group struct {
	Day, Account, Project, Key, Model, ServiceTier bool
}

// Total is the sum of the usage of one group. Properties that are not grouped by are zero.
type Total struct {
	// Day is the day on which the requests started, in UTC or in the zone of the query.
	Day       time.Time
	AccountID account.ID
	// ProjectID is zero also for usage of keys that were in no project.
	ProjectID project.ID
	KeyID     key.ID
	Model     string
	// ServiceTier is empty for the default one.
	ServiceTier string
	Sums
}

// Sums are the quantities of a total. Tokens are counted as in price.Usage, except that CacheWrite
// covers all cache lifetimes.
type Sums struct {
	Requests int64
	// Estimated is the number of requests whose usage the gateway has estimated.
	Estimated int64
	// ClientGone is the number of requests whose client left before the end of the answer.
	ClientGone         int64
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

// TotalQuery selects usage to sum up. Zero members select all.
type TotalQuery struct {
	By        Group
	AccountID account.ID
	ProjectID project.ID
	KeyID     key.ID
	Model     string
	// From and To are days: From ≤ day < To. They are midnights of UTC, whatever the zone is.
	From time.Time
	To   time.Time
	// Zone is the zone of all days; nil is UTC. With another one, the records are summed up, so CheckZone has conditions.
	Zone *time.Location
	// Booked selects by the day of the booking instead of that of the request. It requires an account.
	Booked bool
	// After selects the groups after this one; nil starts with the first.
	After *Total
	// Limit is the maximum number of totals.
	Limit int
}

// Totals returns sums of usage, ordered by day, account, project, key and model. Settlement keeps them up
// to date, and they outlive the records, except for days of a zone that is not UTC.
func (s *Service) Totals(ctx context.Context, q TotalQuery) ([]Total, error) {
	if err := q.CheckZone(); err != nil {
		return nil, err
	}
	return s.store.Totals(ctx, q)
}
