package webhook

import (
	"context"
	"time"

	"modelgateway/controlplane/internal/account"
	"modelgateway/shared/ident"
)

// Position is the position of an event in the order of creation.
type Position struct {
	At time.Time
	ID ident.UUID
}

// EventQuery selects events.
type EventQuery struct {
	// Type is empty for all.
	Type Type
	// AccountID is zero for all.
	AccountID account.ID
	// OldestFirst returns the oldest events after From, and only events before which no other can appear any more, so
	// that a reader that continues with the last one misses none. Otherwise the newest events before From are returned.
	OldestFirst bool
	// From is nil to start with the first.
	From *Position
	// Limit is the maximum number of events.
	Limit int
}

// Listed is an event with its deliveries.
type Listed struct {
	Position
	// Body is the event as it is sent.
	Body       []byte
	Deliveries []Delivery
}

// Events returns events.
func (s *Service) Events(ctx context.Context, q EventQuery) ([]Listed, error) {
	return s.cfg.Store.Events(ctx, q)
}
