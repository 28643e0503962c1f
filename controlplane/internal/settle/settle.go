// Package settle books usage events so that each request
// is charged once, even if events are delivered twice, late or out of order.
//
// A batch is settled in one transaction, and acknowledged only after its
// commit. Events that can never be settled are put into quarantine in the same
// transaction and count as settled for the watermark, so that a bad event is not
// lost and does not block the others. Settlement checks no limits: the request
// has already been served.
//
// A batch on its way, from a message of the usage stream with two events of session 7:
//
//	DecodeBatch      two Items; an event that cannot be read is an Item with a reason for quarantine
//	RejectForeign    the subject names session 7, too
//	Settler.Settle   the cost is the price of the usage, the session holds a lease of the account, the usage is plausible
//	Store.Settle     one transaction: usage records by request id, charges of leases and pools, ledger, roll-ups,
//	                 quarantine, sequence numbers
//	Result           the watermark of session 7, which package bus pushes to its proxy after it has acknowledged the message
//
// If the message comes again, the usage records exist: nothing is charged, and the same watermark is pushed. If an
// event comes again with another cost, its fingerprint differs, and it goes into quarantine.
package settle

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"modelgateway/shared/event"
	"modelgateway/shared/ident"
)

// Item is one usage event to be settled or put into quarantine.
type Item struct {
	// Session and Seq identify the event for the watermark, even if Event is nil. Seq is zero if there is no valid
	// sequence number.
	Session, Seq int64
	// BatchSession is the session of the message that the event came in; zero if it is no batch.
	BatchSession int64
	// Message is the position of that message among those that are settled together.
	Message int
	// Publisher is nil if the event does not come from the usage stream.
	Publisher *Publisher
	// Event is nil if the payload is invalid; QuarantineReason says why.
	Event     *event.Usage
	RequestID ident.UUID
	AccountID ident.UUID
	KeyID     ident.UUID
	// ProjectID is zero if the key was in no project.
	ProjectID        ident.UUID
	Payload          []byte
	QuarantineReason string
	// Reviewed means that an operator has decided that the event is to be charged: it may be implausible, and its request
	// need not hold a lease.
	Reviewed bool
	// Provider is what the call that served the request cost the operator; Attempts is what the others did, in the order of the event's
	// attempts. Attempts is nil if none of them has spent anything.
	Provider ProviderCost
	Attempts []ProviderCost
}

// Store writes settlements.
type Store interface {
	// Settle writes the items, which are sorted by request id, in one transaction. It leaves out those of accounts whose books
	// cannot be changed now, and returns an UnsettledError with the result of the others.
	Settle(ctx context.Context, items []Item) (Result, error)
	// RequestTimes returns the range of request times for which usage can be stored, and the store's current time.
	RequestTimes(ctx context.Context) (from, to, now time.Time, err error)
}

// maxSeq bounds sequence numbers. No session comes near it, and Postgres can store
// the end of a range, which is one more.
const maxSeq = 1 << 53

// maxAhead is how far the time of a request id may be ahead of the store's clock.
const maxAhead = 24 * time.Hour

// DecodeBatch decodes a message of the usage stream. A message that is not a valid
// batch becomes one item without a sequence number, for the quarantine.
func DecodeBatch(payload []byte) []Item {
	session, events, err := event.DecodeBatch(payload)
	if err != nil {
		return []Item{{Payload: append([]byte{}, payload...), QuarantineReason: reason(err)}}
	}
	items := make([]Item, len(events))
	for i := range events {
		items[i] = newItem(session, &events[i])
	}
	return items
}

// Publisher is the subject on which a batch was published: that of one session of
// one proxy. NATS can restrict a proxy to subjects with its own name.
type Publisher struct {
	Proxy   string
	Session int64
}

// RejectForeign puts all events of a message into quarantine that was published
// on the subject of another session than that of its batch.
func RejectForeign(items []Item, published string) {
	for i := range items {
		items[i].reject("event of session %d was published on %s", items[i].Session, published)
	}
}

// reject puts an event into quarantine that its session did not report. Its
// sequence number does not count: the event that has the number may still come.
func (i *Item) reject(format string, args ...any) {
	i.Event, i.Seq = nil, 0
	i.QuarantineReason = reason(fmt.Errorf(format, args...))
}

// newItem validates one event of a batch. If the event names another session than
// the batch, its sequence number does not count: the event that has this number
// in the session may not have arrived yet, and its proxy would take it for settled.
func newItem(session int64, decoded *event.BatchEvent) Item {
	e, err := &decoded.Usage, decoded.Err
	item := Item{
		Session:      session,
		BatchSession: session,
		Seq:          e.Seq,
		Payload:      decoded.Raw,
	}

	var ids event.IDs
	if err == nil {
		ids, err = e.Check()
	}

	if e.Session != session && e.Session > 0 {
		err = errors.Join(err, fmt.Errorf("event of session %d in a batch of session %d", e.Session, session))
		item.Session, item.Seq = e.Session, 0
	}

	if item.Seq < 0 || item.Seq > maxSeq {
		err = errors.Join(err, fmt.Errorf("sequence number %d is out of range", item.Seq))
		item.Seq = 0
	}

	if err != nil {
		item.QuarantineReason = reason(err)
		return item
	}

	item.Event, item.RequestID, item.AccountID, item.KeyID, item.ProjectID = e, ids.Request, ids.Account, ids.Key, ids.Project
	return item
}

// The reasons for quarantine that are found against the database.
const (
	ReasonUnknownKey   = "there is no such key"
	ReasonOtherAccount = "the key belongs to another account"
	// ReasonOtherProject is that of an event that names a project of another account. One that does not exist was lost with commits,
	// like the move of the key into it: the request is charged.
	ReasonOtherProject = "the project belongs to another account"
	// ReasonUnknownWindow is that of an event that names windows of limits that are not those of its key, project or account.
	ReasonUnknownWindow = "there is no such window of a limit of the key"
	ReasonConflict      = "altered duplicate of a settled request"
	ReasonNoLease       = "the session holds no lease of the account, so it cannot have admitted the request"
)

// maxReason bounds the reason stored with an event in quarantine, in bytes.
const maxReason = 500

func reason(err error) string { return TrimReason(err.Error()) }

// TrimReason shortens a quarantine reason and removes the bytes that Postgres
// cannot store; error texts quote what proxies have sent.
func TrimReason(text string) string {
	text = strings.ReplaceAll(text, "\x00", "")
	if len(text) > maxReason {
		text = text[:maxReason]
	}
	return strings.ToValidUTF8(text, "")
}

// Settler settles batches with a Store.
type Settler struct {
	store Store
	known knownFacts
}

// New returns a Settler. Without facts it checks neither costs nor leases.
func New(store Store, facts Facts) *Settler {
	return &Settler{store: store, known: knownFacts{facts: facts}}
}

// Settle settles the items. If the store returns ErrUnstorable, the batch is
// halved until the batch is the single event that causes the error; this event
// goes into quarantine.
// After an UnsettledError its items, and after any other error the whole batch has to be settled again.
func (s *Settler) Settle(ctx context.Context, items []Item) (Result, error) {
	from, to, now, err := s.store.RequestTimes(ctx)
	if err != nil {
		return Result{}, fmt.Errorf("settle: %w", err)
	}
	if limit := now.Add(maxAhead); limit.Before(to) {
		to = limit
	}

	for i := range items {
		if items[i].QuarantineReason == "" {
			items[i].QuarantineReason = checkRequestTime(items[i].RequestID.Time(), from, to)
		}
	}

	if err := s.check(ctx, items); err != nil {
		return Result{}, err
	}
	if err := s.addProviderCosts(ctx, items); err != nil {
		return Result{}, err
	}

	sortByRequest(items)
	return s.bisect(ctx, items)
}

// sortByRequest sorts items by their request ids; those with the same id keep their
// order. It sorts ids with positions, because items are large.
func sortByRequest(items []Item) {
	type position struct {
		high, low uint64
		at        int
	}

	order := make([]position, len(items))
	for i := range items {
		id := &items[i].RequestID
		order[i] = position{binary.BigEndian.Uint64(id[:8]), binary.BigEndian.Uint64(id[8:]), i}
	}

	slices.SortFunc(order, func(a, b position) int {
		if a.high != b.high {
			return cmp.Compare(a.high, b.high)
		}
		return cmp.Or(cmp.Compare(a.low, b.low), cmp.Compare(a.at, b.at))
	})

	unsorted := slices.Clone(items)
	for i := range order {
		items[i] = unsorted[order[i].at]
	}
}

// checkRequestTime returns a quarantine reason for a request whose time no
// partition covers: without a partition, no unique key can show that the request
// was settled before.
func checkRequestTime(at, from, to time.Time) string {
	if at.Before(from) || !at.Before(to) {
		return fmt.Sprintf("the time %s of the request id is outside of the range %s to %s",
			at.UTC().Format(time.RFC3339), from.UTC().Format(time.RFC3339), to.UTC().Format(time.RFC3339))
	}
	return ""
}

// ErrUnstorable is wrapped by errors of a Store that the content of the batch causes.
var ErrUnstorable = errors.New("settle: the content of the batch cannot be stored")

// UnsettledError is returned with the result of the other items for those that could not be settled now, and have to be settled
// again: an account with such an error does not stop the settlement of others.
type UnsettledError struct {
	Items []Item
	Err   error
}

func (e *UnsettledError) Error() string {
	return fmt.Sprintf("%d usage events could not be settled now: %v", len(e.Items), e.Err)
}

// Unwrap returns why.
func (e *UnsettledError) Unwrap() error { return e.Err }

// and returns the error of two parts of a batch. If nothing of the second part was settled, that is its error.
func (e *UnsettledError) and(second error) error {
	var o *UnsettledError
	switch {
	case e == nil || second != nil && !errors.As(second, &o):
		return second
	case second == nil:
		return e
	}
	return &UnsettledError{slices.Concat(e.Items, o.Items), errors.Join(e.Err, o.Err)}
}

// IsUnstorable reports whether a quarantine reason is that the content could not
// be stored.
func IsUnstorable(reason string) bool { return strings.HasPrefix(reason, ErrUnstorable.Error()) }

// bisect settles the items, in halves if their content cannot be stored.
func (s *Settler) bisect(ctx context.Context, items []Item) (Result, error) {
	result, err := s.store.Settle(ctx, items)
	switch {
	case err == nil || !errors.Is(err, ErrUnstorable):
		return result, err
	case len(items) == 1 && items[0].QuarantineReason != "":
		return result, fmt.Errorf("put event into quarantine: %w", err)
	case len(items) == 1:
		items[0].QuarantineReason = reason(err)
		return s.bisect(ctx, items)
	}

	half := len(items) / 2
	first, err := s.bisect(ctx, items[:half])
	var left *UnsettledError
	if err != nil && !errors.As(err, &left) {
		return first, err
	}

	second, err := s.bisect(ctx, items[half:])
	first.add(&second)
	return first, left.and(err)
}
