package usage

import (
	"context"
	"time"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/project"
)

// ExportQuery selects records, oldest request first. Zero members select all.
type ExportQuery struct {
	AccountID account.ID
	ProjectID project.ID
	KeyID     key.ID
	Model     string
	// From and To bound the time at which the request started: From ≤ start < To.
	From time.Time
	To   time.Time
	// After selects requests after this one.
	After RequestID
	// Limit is the maximum number of records.
	Limit int
}

// Export returns records in the order in which the requests started. A record that is settled late
// can belong to a page that was read already: a period is complete when its proxies have no
// unsettled usage from it.
func (s *Service) Export(ctx context.Context, q ExportQuery) ([]Record, error) {
	return s.store.Export(ctx, q)
}
