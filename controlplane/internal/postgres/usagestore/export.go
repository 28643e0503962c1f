package usagestore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/usage"
	"modelgateway/shared/ident"
)

func (s *Usage) Export(ctx context.Context, query usage.ExportQuery) ([]usage.Record, error) {
	after, ceiling := ident.UUID(query.After), postgres.HighestID
	if floor := postgres.LowestID(query.From); string(after[:]) < string(floor[:]) {
		after = before(floor)
	}
	if !query.To.IsZero() {
		ceiling = postgres.LowestID(query.To)
	}
	owner, found, err := s.accountOf(ctx, query.AccountID, query.ProjectID)
	if err != nil || !found {
		return nil, err
	}
	query.AccountID = owner
	rows, err := s.export(ctx, &query, after, ceiling)
	if err != nil {
		return nil, postgres.Translate("export usage", err)
	}
	return toRecords(rows)
}

// export reads with the most selective index.
func (s *Usage) export(ctx context.Context, query *usage.ExportQuery, after, ceiling ident.UUID) ([]sqlcgen.UsageRecord, error) {
	limit := int32(query.Limit)
	switch {
	case query.KeyID != key.ID{}:
		return s.db.Queries().ExportKeyUsage(ctx, sqlcgen.ExportKeyUsageParams{
			KeyID:     ident.UUID(query.KeyID),
			AccountID: accountOrNil(query.AccountID),
			ProjectID: projectOrNil(query.ProjectID),
			After:     after,
			Ceiling:   ceiling,
			Model:     query.Model,
			RowLimit:  limit,
		})
	case query.AccountID != account.ID{}:
		return s.db.Queries().ExportAccountUsage(ctx, sqlcgen.ExportAccountUsageParams{
			AccountID: ident.UUID(query.AccountID),
			ProjectID: projectOrNil(query.ProjectID),
			After:     after,
			Ceiling:   ceiling,
			Model:     query.Model,
			RowLimit:  limit,
		})
	case query.Model != "":
		return s.db.Queries().ExportModelUsage(ctx, sqlcgen.ExportModelUsageParams{
			Model:    query.Model,
			After:    after,
			Ceiling:  ceiling,
			RowLimit: limit,
		})
	default:
		return s.db.Queries().ExportUsage(ctx, sqlcgen.ExportUsageParams{After: after, Ceiling: ceiling, RowLimit: limit})
	}
}

// Exceeds implements usage.Store. It reads an index only.
func (s *Usage) Exceeds(ctx context.Context, q usage.PreviewQuery, limit int) (bool, error) {
	_, err := s.db.Queries().UsageBelow(ctx, sqlcgen.UsageBelowParams{
		Floor:   postgres.LowestID(q.From),
		Ceiling: postgres.LowestID(q.To),
		Model:   q.Model,
		Looked:  int32(limit),
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return err == nil, postgres.Translate("count the usage of a preview", err)
}

// before returns the id below another one; zero for zero.
func before(u ident.UUID) ident.UUID {
	if u.IsZero() {
		return u
	}
	for i := len(u) - 1; i >= 0; i-- {
		if u[i]--; u[i] != 0xff {
			break
		}
	}
	return u
}

func toRecords(rows []sqlcgen.UsageRecord) ([]usage.Record, error) {
	records := make([]usage.Record, len(rows))
	for i := range rows {
		var err error
		if records[i], err = toUsage(&rows[i]); err != nil {
			return nil, err
		}
	}
	return records, nil
}
