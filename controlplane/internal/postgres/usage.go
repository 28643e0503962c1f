package postgres

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/usage"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
	"modelgateway/shared/price"
)

// UsageStore reads what settlement wrote; it implements usage.Store.
type UsageStore struct{ *DB }

// Get implements usage.Store.
func (s UsageStore) Get(ctx context.Context, id usage.RequestID) (usage.Record, error) {
	row, err := s.q.GetUsage(ctx, ident.UUID(id))
	if err != nil {
		return usage.Record{}, missing("get usage", err, usage.ErrNotFound)
	}
	return toUsage(&row)
}

// Sheet implements usage.Store.
func (s UsageStore) Sheet(ctx context.Context, version int64) (price.Sheet, error) {
	text, err := s.q.GetSheet(ctx, version)
	if err != nil {
		return price.Sheet{}, missing("get price version", err, usage.ErrNoSheet)
	}
	var sheet price.Sheet
	if err := json.Unmarshal(text, &sheet); err != nil {
		return price.Sheet{}, fmt.Errorf("postgres: read price version %d: %w", version, err)
	}
	sheet.Version = version
	return sheet, nil
}

// List implements usage.Store.
func (s UsageStore) List(ctx context.Context, query usage.Query) ([]usage.Record, error) {
	floor, ceiling := lowestID(query.From), highestID
	if !query.To.IsZero() {
		ceiling = lowestID(query.To)
	}
	if before := ident.UUID(query.Before); !before.IsZero() && string(before[:]) < string(ceiling[:]) {
		ceiling = before
	}
	rows, err := s.list(ctx, query, floor, ceiling)
	if err != nil {
		return nil, Translate("list usage", err)
	}
	return toRecords(rows)
}

// list asks by the narrowest index.
//
//nolint:dupl // export is the same in the other direction, which SQL has no parameter for
func (s UsageStore) list(ctx context.Context, query usage.Query, floor, ceiling ident.UUID) ([]sqlcgen.UsageRecord, error) {
	limit := int32(query.Limit)
	switch {
	case query.KeyID != key.ID{}:
		return s.q.ListKeyUsage(ctx, sqlcgen.ListKeyUsageParams{
			KeyID: ident.UUID(query.KeyID), AccountID: accountOrNil(query.AccountID),
			Floor: floor, Ceiling: ceiling, Model: query.Model, RowLimit: limit,
		})
	case query.AccountID != account.ID{}:
		return s.q.ListAccountUsage(ctx, sqlcgen.ListAccountUsageParams{
			AccountID: ident.UUID(query.AccountID), Floor: floor, Ceiling: ceiling, Model: query.Model, RowLimit: limit,
		})
	case query.Model != "":
		return s.q.ListModelUsage(ctx, sqlcgen.ListModelUsageParams{Model: query.Model, Floor: floor, Ceiling: ceiling, RowLimit: limit})
	default:
		return s.q.ListUsage(ctx, sqlcgen.ListUsageParams{Floor: floor, Ceiling: ceiling, RowLimit: limit})
	}
}

func accountOrNil(id account.ID) *ident.UUID {
	if id == (account.ID{}) {
		return nil
	}
	u := ident.UUID(id)
	return &u
}

// EnsurePartitions makes the partitions that usage of the coming weeks goes
// into. It does nothing where they exist, and may run on several replicas.
func (s UsageStore) EnsurePartitions(ctx context.Context) error {
	_, err := s.q.EnsureUsagePartitions(ctx)
	return Translate("make usage partitions", err)
}

// highestID is above the id of every request.
var highestID = ident.UUID{
	0: 0xff, 1: 0xff, 2: 0xff, 3: 0xff, 4: 0xff, 5: 0xff, 6: 0xff, 7: 0xff,
	8: 0xff, 9: 0xff, 10: 0xff, 11: 0xff, 12: 0xff, 13: 0xff, 14: 0xff, 15: 0xff,
}

// lowestID is not above the id of any request begun at or after a time.
func lowestID(t time.Time) ident.UUID {
	var u ident.UUID
	if t.IsZero() || t.UnixMilli() < 0 {
		return u
	}
	ms := uint64(t.UnixMilli())
	binary.BigEndian.PutUint16(u[:2], uint16(ms>>32))
	binary.BigEndian.PutUint32(u[2:6], uint32(ms))
	return u
}

func toUsage(row *sqlcgen.UsageRecord) (usage.Record, error) {
	r := usage.Record{
		RequestID: usage.RequestID(row.RequestID), AccountID: account.ID(row.AccountID), KeyID: key.ID(row.KeyID),
		Model: row.Model, Format: row.Format, Provider: row.Provider, Route: row.Route, ProviderRequestID: row.ProviderRequestID,
		Status: event.Status(row.Status), HTTPStatus: int(row.HttpStatus), Stream: row.Stream,
		StartedAt: row.StartedAt, FinishedAt: row.FinishedAt, FirstByteMS: row.FirstByteMs,
		Rule: row.Rule, Estimated: row.Estimated, PriceVersion: row.PriceVersion,
		Cost: money.Nano(row.Cost), Reserve: money.Nano(row.Reserve), PriceMultiplier: price.Multiplier(row.PriceMultiplier),
		VideoJob: row.VideoJob, SettledAt: row.SettledAt,
	}
	if err := json.Unmarshal(row.Usage, &r.Usage); err != nil {
		return usage.Record{}, fmt.Errorf("postgres: read usage of %s: %w", r.RequestID, err)
	}
	return r, nil
}
