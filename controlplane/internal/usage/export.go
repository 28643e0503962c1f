package usage

import (
	"context"
	"time"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/key"
)

// ExportQuery selects records, oldest request first. Zero members select all.
type ExportQuery struct {
	AccountID account.ID
	KeyID     key.ID
	Model     string
	// From and To bound the time at which the request began: From ≤ begun < To.
	From time.Time
	To   time.Time
	// After takes requests behind this one.
	After RequestID
	// Limit is the greatest number of records.
	Limit int
}

// Export returns records in the order in which the requests began. What is
// settled late may lie behind a page that was read already: a period is whole
// once its proxies have nothing unsettled any more.
func (s *Service) Export(ctx context.Context, q ExportQuery) ([]Record, error) {
	return s.store.Export(ctx, q)
}
