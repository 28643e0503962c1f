// Package settle owns the way from a usage event to the ledger: each request
// is charged once, whatever is delivered twice, late or out of order.
//
// A batch is settled in one transaction, and acknowledged only after its
// commit. Events that can never be settled are put into quarantine in the
// same transaction and count as settled, so that one bad event neither stops
// the others nor is lost. Costs always land: no limit is looked at here.
package settle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"modelgateway/shared/event"
	"modelgateway/shared/ident"
)

// Item is one event on its way into the ledger.
type Item struct {
	// Session and N number the event for the watermark, also when Event cannot be read.
	// N is zero when it has none.
	Session, N int64
	// Event is nil when Fault says why the payload cannot be settled.
	Event       *event.Usage
	RequestID   ident.UUID
	AccountID   ident.UUID
	KeyID       ident.UUID
	Fingerprint [32]byte
	Payload     []byte
	Fault       string
}

// Result tells what a batch did.
type Result struct {
	Settled, Repeated, Quarantined int
	// Oldest is when the oldest newly settled request finished, in Unix milliseconds; zero if there was none.
	Oldest int64
	// Watermarks holds the new state of every session of the batch.
	Watermarks []event.Settled
}

// Store writes batches.
type Store interface {
	// Settle writes the items, sorted by request id, in one transaction.
	Settle(ctx context.Context, items []Item) (Result, error)
	// Span is the range of request times that usage can be stored for, and the store's own time.
	Span(ctx context.Context) (from, to, now time.Time, err error)
}

// maxNumber bounds the numbers of events: no session comes near it, and the
// ranges of numbers in Postgres end one above.
const maxNumber = 1 << 53

// future is how far ahead of Postgres' clock a request may claim to be.
const future = 24 * time.Hour

// Read takes a stream message apart into items. A message that is no batch at
// all becomes one item without number, for the quarantine.
func Read(payload []byte) []Item {
	session, events, err := event.DecodeBatch(payload)
	if err != nil {
		return []Item{{Payload: append([]byte{}, payload...), Fault: reason(err)}}
	}
	items := make([]Item, len(events))
	for i := range events {
		items[i] = readEvent(session, &events[i])
	}
	return items
}

// readEvent judges one event of a batch. Its number counts for the session that
// it names itself: counted for another, it would pass for an event that may
// not have arrived at all.
func readEvent(session int64, read *event.BatchEvent) Item {
	e, err := &read.Usage, read.Err
	item := Item{Session: session, N: e.Seq, Payload: read.Raw}
	if err == nil {
		err = e.Validate()
	}
	if e.Session != session && e.Session > 0 {
		err = errors.Join(err, fmt.Errorf("event of session %d in a batch of session %d", e.Session, session))
		item.Session = e.Session
	}
	if item.N < 0 || item.N > maxNumber {
		err = errors.Join(err, fmt.Errorf("event number %d is out of range", item.N))
		item.N = 0
	}
	if err != nil {
		item.Fault = reason(err)
		return item
	}
	item.Event = e
	item.RequestID, _ = ident.Request.Parse(e.RequestID) // Validate has parsed all three
	item.AccountID, _ = ident.Account.Parse(e.AccountID)
	item.KeyID, _ = ident.Key.Parse(e.KeyID)
	item.Fingerprint = e.Fingerprint()
	return item
}

// maxReason bounds the text that goes into quarantine with an event, in bytes.
const maxReason = 500

func reason(err error) string { return Reason(err.Error()) }

// Reason is the text of a fault in a form that Postgres takes: faults quote
// what proxies have sent.
func Reason(text string) string {
	text = strings.ReplaceAll(text, "\x00", "")
	if len(text) > maxReason {
		text = text[:maxReason]
	}
	return strings.ToValidUTF8(text, "")
}

// Settler settles batches through a Store.
type Settler struct{ store Store }

// New returns a Settler.
func New(store Store) *Settler { return &Settler{store} }

// Settle writes the items. When the store refuses a batch for its content, the
// batch is halved until the event at fault is alone, and that goes into
// quarantine; any other error is returned, with everything to be done again.
func (s *Settler) Settle(ctx context.Context, items []Item) (Result, error) {
	from, to, now, err := s.store.Span(ctx)
	if err != nil {
		return Result{}, fmt.Errorf("settle: %w", err)
	}
	if limit := now.Add(future); limit.Before(to) {
		to = limit
	}
	for i := range items {
		if items[i].Fault == "" {
			items[i].Fault = outside(items[i].RequestID.Time(), from, to)
		}
	}
	slices.SortStableFunc(items, func(a, b Item) int { return bytes.Compare(a.RequestID[:], b.RequestID[:]) })
	return s.bisect(ctx, items)
}

// outside refuses requests whose time no partition covers: for them the
// primary key could not tell whether they were settled before.
func outside(at, from, to time.Time) string {
	if at.Before(from) || !at.Before(to) {
		return fmt.Sprintf("request id of %s is outside %s to %s", at.UTC().Format(time.RFC3339), from.UTC().Format(time.RFC3339), to.UTC().Format(time.RFC3339))
	}
	return ""
}

// ErrContent is wrapped by Store errors that the content of the batch causes.
var ErrContent = errors.New("settle: the content cannot be stored")

func (s *Settler) bisect(ctx context.Context, items []Item) (Result, error) {
	result, err := s.store.Settle(ctx, items)
	switch {
	case err == nil || !errors.Is(err, ErrContent):
		return result, err
	case len(items) == 1 && items[0].Fault != "":
		return result, fmt.Errorf("quarantine: %w", err)
	case len(items) == 1:
		items[0].Fault = reason(err)
		return s.bisect(ctx, items)
	}
	half := len(items) / 2
	first, err := s.bisect(ctx, items[:half])
	if err != nil {
		return first, err
	}
	second, err := s.bisect(ctx, items[half:])
	return first.plus(second), err
}

func (r Result) plus(o Result) Result {
	r.Settled += o.Settled
	r.Repeated += o.Repeated
	r.Quarantined += o.Quarantined
	if r.Oldest == 0 || (o.Oldest != 0 && o.Oldest < r.Oldest) {
		r.Oldest = o.Oldest
	}
	r.Watermarks = append(r.Watermarks, o.Watermarks...) // the later state of a session comes last
	return r
}
