package settle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"modelgateway/shared/event"
)

var (
	// ErrNotQuarantined is returned if there is no such event in quarantine.
	ErrNotQuarantined = errors.New("settle: no such event in quarantine")
	// ErrAlreadyResolved is returned for an event that was already released or dismissed.
	ErrAlreadyResolved = errors.New("settle: the event in quarantine is already resolved")
	// ErrCannotSettle is returned by Release for an event that still cannot be settled.
	ErrCannotSettle = errors.New("settle: the event still cannot be settled")
)

// Resolution is an operator's decision about an event in quarantine.
type Resolution string

// The resolutions. Open means that no operator has decided yet.
const (
	Open      Resolution = ""
	Released  Resolution = "released"
	Dismissed Resolution = "dismissed"
)

// Quarantined is an event that could not be settled, or the record of a video
// job that could not be restored after a loss of commits.
type Quarantined struct {
	ID           int64
	Session, Seq int64
	// RequestID is empty if the event has no valid one.
	RequestID string
	// Reason is why the event cannot be settled.
	Reason string
	// Payload is the event as it was received; it is nil in lists.
	Payload []byte
	At      time.Time
	// ResolvedAt is nil while the event is open. Note is why it was dismissed.
	ResolvedAt *time.Time
	Resolution Resolution
	Note       string
}

// QuarantineQuery selects events, the newest first.
type QuarantineQuery struct {
	Resolution Resolution
	// Before selects events with a smaller id; zero selects all.
	Before int64
	Limit  int
}

// QuarantineStore stores the quarantine.
type QuarantineStore interface {
	// List returns events without their payload.
	List(ctx context.Context, q QuarantineQuery) ([]Quarantined, error)
	// Get returns an event with its payload, or ErrNotQuarantined.
	Get(ctx context.Context, id int64) (Quarantined, error)
	// Resolve records a resolution of an open event, and an audit entry. Released is recorded even if the event was
	// dismissed in the meantime, because it has been settled by then. Any other event that is not open gives
	// ErrAlreadyResolved.
	Resolve(ctx context.Context, id int64, r Resolution, note string) (Quarantined, error)
	// CountOpen returns the number of open events.
	CountOpen(ctx context.Context) (int64, error)
}

// Quarantine lets operators list, release and dismiss the events that could not
// be settled.
type Quarantine struct {
	store   QuarantineStore
	settler *Settler
}

// NewQuarantine returns a Quarantine that settles released events with settler.
func NewQuarantine(store QuarantineStore, settler *Settler) *Quarantine {
	return &Quarantine{store, settler}
}

// List returns events without their payload.
func (q *Quarantine) List(ctx context.Context, query QuarantineQuery) ([]Quarantined, error) {
	return q.store.List(ctx, query)
}

// Get returns an event with its payload.
func (q *Quarantine) Get(ctx context.Context, id int64) (Quarantined, error) {
	return q.store.Get(ctx, id)
}

// CountOpen returns the number of open events.
func (q *Quarantine) CountOpen(ctx context.Context) (int64, error) { return q.store.CountOpen(ctx) }

// Dismiss resolves an event without a charge.
func (q *Quarantine) Dismiss(ctx context.Context, id int64, note string) (Quarantined, error) {
	return q.store.Resolve(ctx, id, Dismissed, note)
}

// Release settles an event after an operator has removed the cause of its
// rejection, or has decided that implausible usage is to be charged. The cost must
// be the price of the usage even so, or receipts would be wrong. It can be repeated after an error: settling an event twice charges
// it once.
func (q *Quarantine) Release(ctx context.Context, id int64) (Quarantined, error) {
	found, err := q.store.Get(ctx, id)
	if err != nil {
		return Quarantined{}, err
	}
	if found.Resolution != Open {
		return Quarantined{}, ErrAlreadyResolved
	}

	items := decodeQuarantined(&found)
	if len(items) == 0 { // it is the record of a video job, not a usage event
		return Quarantined{}, ErrCannotSettle
	}

	for i := range items {
		items[i].Reviewed = true
	}

	result, err := q.settler.Settle(ctx, items)
	if err != nil {
		return Quarantined{}, err
	}
	if result.Quarantined > 0 {
		return Quarantined{}, ErrCannotSettle
	}

	return q.store.Resolve(ctx, id, Released, "")
}

// decodeQuarantined decodes the payload again. It is a whole batch if the batch
// could not be decoded, and one event otherwise.
func decodeQuarantined(q *Quarantined) []Item {
	if q.Session == 0 {
		return DecodeBatch(q.Payload)
	}
	read := event.BatchEvent{Raw: q.Payload}
	if read.Err = json.Unmarshal(q.Payload, &read.Usage); read.Err != nil {
		read.Err = fmt.Errorf("event: %w", read.Err)
	}
	return []Item{newItem(q.Session, &read)}
}
