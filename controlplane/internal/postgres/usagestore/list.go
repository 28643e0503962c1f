package usagestore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/project"
	"modelgateway/controlplane/internal/usage"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
)

func (s *Usage) List(ctx context.Context, query usage.Query) (usage.Page, error) {
	page, err := s.read(ctx, &query, false)
	return page, postgres.Translate("list usage", err)
}

// Export implements usage.Store. It reads as many pages of a list in the other order as have the limit of records.
func (s *Usage) Export(ctx context.Context, query usage.Query) ([]usage.Record, error) {
	var records []usage.Record
	for {
		page, err := s.read(ctx, &query, true)
		if err != nil {
			return nil, postgres.Translate("export usage", err)
		}
		if records = append(records, page.Records...); page.Resume == (usage.RequestID{}) {
			return records, nil
		}
		query.After = page.Resume
		query.Limit -= len(page.Records)
	}
}

func (s *Usage) read(ctx context.Context, query *usage.Query, oldestFirst bool) (usage.Page, error) {
	owner, found, err := s.accountOf(ctx, query.AccountID, query.ProjectID)
	if err != nil || !found {
		return usage.Page{}, err
	}
	query.AccountID = owner
	return reader{s, s.db.PlannedQueries(), query, oldestFirst}.page(ctx)
}

// reader reads one page.
type reader struct {
	store       *Usage
	q           *sqlcgen.Queries
	query       *usage.Query
	oldestFirst bool
}

func (r reader) page(ctx context.Context) (usage.Page, error) {
	floor, ceiling := bounds(r.query)
	if !r.compares() {
		rows, err := r.rows(ctx, floor, ceiling, r.query.Limit)
		if err != nil {
			return usage.Page{}, err
		}
		records, err := toRecords(rows)
		return usage.Page{Records: records}, err
	}

	var rows []sqlcgen.UsageRecord
	var resume ident.UUID
	most := r.store.maxCompared
	if q := r.query; q.KeyID != (key.ID{}) || q.AccountID != (account.ID{}) || q.Model != "" {
		most = r.store.maxScattered
	}

	for compared, next := 0, r.store.firstCompared; ; next = min(next*9, most-compared) {
		end, more, err := r.beyond(ctx, floor, ceiling, next)
		if err != nil {
			return usage.Page{}, err
		}
		low, high := floor, ceiling
		switch {
		case !more:
		case r.oldestFirst:
			high = end
		default:
			low = end
		}

		found, err := r.rows(ctx, low, high, r.query.Limit-len(rows))
		if err != nil {
			return usage.Page{}, err
		}
		if rows = append(rows, found...); len(rows) == r.query.Limit || !more {
			break
		}

		if compared += next; r.oldestFirst {
			floor = end
		} else {
			ceiling = end
		}
		if compared == most {
			if resume = end; r.oldestFirst {
				resume = before(end)
			}
			break
		}
	}

	records, err := toRecords(rows)
	return usage.Page{Records: records, Resume: usage.RequestID(resume)}, err
}

// bounds returns the range of ids of a query: floor ≤ id < ceiling.
func bounds(query *usage.Query) (floor, ceiling ident.UUID) {
	floor, ceiling = postgres.LowestID(query.From), postgres.HighestID
	raise := func(bound ident.UUID) {
		if string(bound[:]) > string(floor[:]) {
			floor = bound
		}
	}
	raise(ident.UUID(query.Lowest))
	if last := ident.UUID(query.After); !last.IsZero() {
		raise(after(last))
	}

	lower := func(bound ident.UUID) {
		if string(bound[:]) < string(ceiling[:]) {
			ceiling = bound
		}
	}
	if !query.To.IsZero() {
		lower(postgres.LowestID(query.To))
	}
	if highest := ident.UUID(query.Highest); !highest.IsZero() {
		lower(after(highest))
	}
	if before := ident.UUID(query.Before); !before.IsZero() {
		lower(before)
	}

	return floor, ceiling
}

// compares reports whether a filter has no index, so that records that do not match are read.
func (r reader) compares() bool {
	q := r.query
	owned := q.KeyID != key.ID{} || q.AccountID != account.ID{}
	rare := (q.Status != "" && q.Status != event.Completed) || (q.Estimated != nil && *q.Estimated)
	filters := 0
	for _, set := range []bool{
		q.ProjectID != project.ID{}, owned && q.Model != "", q.Status != "", q.Provider != "", q.Route != "", q.Credential != "",
		q.Format != "", q.Stream != nil, q.Estimated != nil, q.MinCost > 0,
	} {
		if set {
			filters++
		}
	}
	return filters > 1 || filters == 1 && (owned || q.Model != "" || !rare)
}

// rows reads the newest records of a range of ids, or the oldest.
func (r reader) rows(ctx context.Context, floor, ceiling ident.UUID, limit int) ([]sqlcgen.UsageRecord, error) {
	q := r.query
	p := sqlcgen.ListUsageParams{
		Floor:        floor,
		Ceiling:      ceiling,
		KeyID:        keyOrNil(q.KeyID),
		AccountID:    accountOrNil(q.AccountID),
		ProjectID:    projectOrNil(q.ProjectID),
		Model:        q.Model,
		Status:       string(q.Status),
		Provider:     q.Provider,
		Route:        q.Route,
		Credential:   q.Credential,
		Format:       q.Format,
		AnyStream:    q.Stream == nil,
		Stream:       postgres.Deref(q.Stream),
		AnyEstimated: q.Estimated == nil,
		Estimated:    postgres.Deref(q.Estimated),
		MinCost:      int64(q.MinCost),
		OldestFirst:  r.oldestFirst,
		RowLimit:     int32(limit),
	}
	if p.KeyID != nil || p.AccountID == nil {
		return r.q.ListUsage(ctx, p)
	}

	return r.q.ListAccountUsage(ctx, sqlcgen.ListAccountUsageParams{
		Floor:        p.Floor,
		Ceiling:      p.Ceiling,
		AccountID:    *p.AccountID,
		ProjectID:    p.ProjectID,
		Model:        p.Model,
		Status:       p.Status,
		Provider:     p.Provider,
		Route:        p.Route,
		Credential:   p.Credential,
		Format:       p.Format,
		AnyStream:    p.AnyStream,
		Stream:       p.Stream,
		AnyEstimated: p.AnyEstimated,
		Estimated:    p.Estimated,
		MinCost:      p.MinCost,
		OldestFirst:  p.OldestFirst,
		RowLimit:     p.RowLimit,
	})
}

// beyond returns an id that at most the given number of records of the range are read before: newer ones, or older ones if those come
// first. more is false if the range ends earlier.
func (r reader) beyond(ctx context.Context, floor, ceiling ident.UUID, compared int) (id ident.UUID, more bool, err error) {
	q := r.query
	if owner := accountOrNil(q.AccountID); owner != nil && q.KeyID == (key.ID{}) {
		id, err = r.beyondOfAccount(ctx, *owner, floor, ceiling, compared)
	} else {
		p := sqlcgen.UsageBeyondParams{
			Floor:       floor,
			Ceiling:     ceiling,
			KeyID:       keyOrNil(q.KeyID),
			OldestFirst: r.oldestFirst,
			Looked:      int32(compared),
		}
		if p.KeyID == nil {
			p.Model = q.Model
		}
		id, err = r.q.UsageBeyond(ctx, p)
	}

	if errors.Is(err, pgx.ErrNoRows) {
		return ident.UUID{}, false, nil
	}

	return id, err == nil, err
}

// beyondOfAccount is beyond for the records of an account. Each of its keys has the same share of the number.
func (r reader) beyondOfAccount(ctx context.Context, owner, floor, ceiling ident.UUID, compared int) (ident.UUID, error) {
	keys, err := r.q.CountKeys(ctx, owner)
	if err != nil {
		return ident.UUID{}, err
	}
	share := max(1, int64(compared)/max(1, keys))
	return r.q.AccountUsageBeyond(ctx, sqlcgen.AccountUsageBeyondParams{
		AccountID:   owner,
		Floor:       floor,
		Ceiling:     ceiling,
		OldestFirst: r.oldestFirst,
		OfKey:       int32(share),
	})
}

func keyOrNil(id key.ID) *ident.UUID {
	if id == (key.ID{}) {
		return nil
	}
	u := ident.UUID(id)
	return &u
}

// after returns the id above another one; the highest for the highest.
func after(u ident.UUID) ident.UUID {
	if u == postgres.HighestID {
		return u
	}
	for i := len(u) - 1; i >= 0; i-- {
		if u[i]++; u[i] != 0 {
			break
		}
	}
	return u
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

// Exceeds implements usage.Store. It reads an index only.
func (s *Usage) Exceeds(ctx context.Context, q usage.PreviewQuery, limit int) (bool, error) {
	_, err := s.db.PlannedQueries().UsageBeyond(ctx, sqlcgen.UsageBeyondParams{
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
