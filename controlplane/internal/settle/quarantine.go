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
	// ErrNotQuarantined says that there is no such event in quarantine.
	ErrNotQuarantined = errors.New("settle: no such event in quarantine")
	// ErrResolved says that the event was released or dismissed before.
	ErrResolved = errors.New("settle: the event is resolved")
	// ErrStillFaulty says that the event cannot be settled as things are.
	ErrStillFaulty = errors.New("settle: the event still cannot be settled")
)

// Resolution is what a person decided about an event in quarantine.
type Resolution string

// The resolutions; an open event has none.
const (
	Open      Resolution = ""
	Released  Resolution = "released"
	Dismissed Resolution = "dismissed"
)

// Quarantined is an event that could not be settled, or the record of a video
// job that could not be restored after a loss of commits.
type Quarantined struct {
	ID         int64
	Session, N int64
	// RequestID is empty if the event has none that can be read.
	RequestID string
	Reason    string
	// Payload is the event as it came; it is left out of lists.
	Payload []byte
	At      time.Time
	// ResolvedAt is nil while the event is open; Note is why it was dismissed.
	ResolvedAt *time.Time
	Resolution Resolution
	Note       string
}

// QuarantineQuery selects events, the newest first.
type QuarantineQuery struct {
	Resolution Resolution
	// Before takes events with a smaller id; zero starts at the newest.
	Before int64
	Limit  int
}

// QuarantineStore keeps the events.
type QuarantineStore interface {
	Quarantined(ctx context.Context, q QuarantineQuery) ([]Quarantined, error)
	// GetQuarantined reads an event with its payload.
	GetQuarantined(ctx context.Context, id int64) (Quarantined, error)
	// Resolve notes a decision about an open event, and writes it to the audit log. Released, which says that it has
	// been settled, is also noted about one that was dismissed meanwhile.
	Resolve(ctx context.Context, id int64, r Resolution, note string) (Quarantined, error)
	// OpenQuarantined counts the open events.
	OpenQuarantined(ctx context.Context) (int64, error)
}

// Quarantine is where people decide about the events that could not be
// settled.
type Quarantine struct {
	store   QuarantineStore
	settler *Settler
}

// NewQuarantine returns the quarantine of a settler.
func NewQuarantine(store QuarantineStore, settler *Settler) *Quarantine {
	return &Quarantine{store, settler}
}

// List returns events without their payload.
func (q *Quarantine) List(ctx context.Context, query QuarantineQuery) ([]Quarantined, error) {
	return q.store.Quarantined(ctx, query)
}

// Get returns an event with its payload.
func (q *Quarantine) Get(ctx context.Context, id int64) (Quarantined, error) {
	return q.store.GetQuarantined(ctx, id)
}

// Open counts the open events.
func (q *Quarantine) Open(ctx context.Context) (int64, error) { return q.store.OpenQuarantined(ctx) }

// Dismiss gives an event up: it is never charged.
func (q *Quarantine) Dismiss(ctx context.Context, id int64, why string) (Quarantined, error) {
	return q.store.Resolve(ctx, id, Dismissed, why)
}

// Release settles an event once more, when what kept it from that has been put
// right. Settled twice it is charged once, so that a release that broke off
// can be repeated.
func (q *Quarantine) Release(ctx context.Context, id int64) (Quarantined, error) {
	found, err := q.store.GetQuarantined(ctx, id)
	if err != nil {
		return Quarantined{}, err
	}
	if found.Resolution != Open {
		return Quarantined{}, ErrResolved
	}
	items := reread(&found)
	if len(items) == 0 { // no usage: the record of a video job that could not be restored
		return Quarantined{}, ErrStillFaulty
	}
	result, err := q.settler.Settle(ctx, items)
	if err != nil {
		return Quarantined{}, err
	}
	if result.Quarantined > 0 {
		return Quarantined{}, ErrStillFaulty
	}
	return q.store.Resolve(ctx, id, Released, "")
}

// reread takes an event apart again, or the whole message where that was none
// that could be read.
func reread(q *Quarantined) []Item {
	if q.Session == 0 {
		return Read(q.Payload)
	}
	read := event.BatchEvent{Raw: q.Payload}
	if read.Err = json.Unmarshal(q.Payload, &read.Usage); read.Err != nil {
		read.Err = fmt.Errorf("event: %w", read.Err)
	}
	return []Item{readEvent(q.Session, &read)}
}
