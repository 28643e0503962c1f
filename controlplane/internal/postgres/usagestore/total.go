package usagestore

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/project"
	"modelgateway/controlplane/internal/usage"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
)

func (s *Usage) Totals(ctx context.Context, query usage.TotalQuery) ([]usage.Total, error) {
	if query.KeyID != (key.ID{}) && query.AccountID == (account.ID{}) {
		owner, err := s.db.Queries().AccountOfKey(ctx, ident.UUID(query.KeyID))
		if errors.Is(err, pgx.ErrNoRows) {
			return nil, nil
		}
		if err != nil {
			return nil, postgres.Translate("find key", err)
		}
		query.AccountID = account.ID(owner)
	}
	owner, found, err := s.accountOf(ctx, query.AccountID, query.ProjectID)
	if err != nil || !found {
		return nil, err
	}
	query.AccountID = owner
	totals, err := ReadTotals(ctx, s.db.PlannedQueries(), &query)
	return totals, postgres.Translate("read usage totals", err)
}

// ReadTotals reads the roll-up with the fewest rows for the query.
func ReadTotals(ctx context.Context, q *sqlcgen.Queries, query *usage.TotalQuery) ([]usage.Total, error) {
	switch {
	case !usage.IsUTC(query.Zone):
		return readZonedTotals(ctx, q, query)
	case query.AccountID != account.ID{}:
		return readTotalsOfAccount(ctx, q, query)
	case !query.By.Account && !query.By.Project && !query.By.Key:
		return readModelTotals(ctx, q, query)
	case query.By.Day:
		return readTotalsByDay(ctx, q, query)
	}

	after, from, to := afterOf(query), postgres.Day(query.From, pgtype.NegativeInfinity), postgres.Day(query.To, pgtype.Infinity)
	first, end := wholeWeeks(from, to)
	rows, err := q.UsageTotals(ctx, sqlcgen.UsageTotalsParams{
		ByAccount:    query.By.Account,
		ByProject:    query.By.Project,
		ByKey:        query.By.Key,
		ByModel:      query.By.Model,
		ByTier:       query.By.ServiceTier,
		FromDay:      from,
		FirstWeek:    first,
		EndOfWeeks:   end,
		ToDay:        to,
		OfModel:      query.Model,
		AfterAccount: ident.UUID(after.AccountID),
		AfterProject: ident.UUID(after.ProjectID),
		AfterKey:     ident.UUID(after.KeyID),
		AfterModel:   after.Model,
		AfterTier:    after.ServiceTier,
		FirstPage:    query.After == nil,
		RowLimit:     int32(query.Limit),
	})
	totals := make([]usage.Total, len(rows))
	for i := range rows {
		totals[i] = toTotal((*sqlcgen.UsageTotalsByDayRow)(&rows[i]))
	}

	return totals, err
}

// afterOf returns the last row of the previous page.
func afterOf(query *usage.TotalQuery) usage.Total {
	if query.After == nil {
		return usage.Total{}
	}
	return *query.After
}

// readTotalsByDay reads a day, then two, then four, until the page is full: rows are
// ordered by day, and a page has few days. It begins with the last day of the
// previous page.
func readTotalsByDay(ctx context.Context, q *sqlcgen.Queries, query *usage.TotalQuery) ([]usage.Total, error) {
	after, from := afterOf(query), query.From
	if after.Day.After(from) {
		from = after.Day
	}

	used, err := q.UsedDays(
		ctx,
		sqlcgen.UsedDaysParams{FromDay: postgres.Day(from, pgtype.NegativeInfinity), ToDay: postgres.Day(query.To, pgtype.Infinity)},
	)
	if err != nil || !used.FirstDay.Valid {
		return nil, err
	}

	var totals []usage.Total
	for from, days := used.FirstDay.Time, 1; !from.After(used.LastDay.Time) && len(totals) < query.Limit; days *= 2 {
		to := earlier(from.AddDate(0, 0, days), used.LastDay.Time.AddDate(0, 0, 1))
		rows, err := q.UsageTotalsByDay(ctx, sqlcgen.UsageTotalsByDayParams{
			ByAccount:    query.By.Account,
			ByProject:    query.By.Project,
			ByKey:        query.By.Key,
			ByModel:      query.By.Model,
			ByTier:       query.By.ServiceTier,
			FromDay:      postgres.Day(from, pgtype.Finite),
			ToDay:        postgres.Day(to, pgtype.Finite),
			OfModel:      query.Model,
			AfterDay:     postgres.Day(after.Day, pgtype.Finite),
			AfterAccount: ident.UUID(after.AccountID),
			AfterProject: ident.UUID(after.ProjectID),
			AfterKey:     ident.UUID(after.KeyID),
			AfterModel:   after.Model,
			AfterTier:    after.ServiceTier,
			FirstPage:    query.After == nil,
			RowLimit:     int32(query.Limit - len(totals)),
		})
		if err != nil {
			return nil, err
		}

		for i := range rows {
			totals = append(totals, toTotal(&rows[i]))
		}

		from = to
	}

	return totals, nil
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// readTotalsOfAccount reads the totals of one account, or of one of its projects or keys.
func readTotalsOfAccount(ctx context.Context, q *sqlcgen.Queries, query *usage.TotalQuery) ([]usage.Total, error) {
	after := afterOf(query)
	rows, err := q.AccountUsageTotals(ctx, sqlcgen.AccountUsageTotalsParams{
		ByDay:        query.By.Day,
		ByAccount:    query.By.Account,
		ByProject:    query.By.Project,
		ByKey:        query.By.Key,
		ByModel:      query.By.Model,
		ByTier:       query.By.ServiceTier,
		Booked:       query.Booked,
		OfAccount:    ident.UUID(query.AccountID),
		AnyProject:   query.ProjectID == project.ID{},
		OfProject:    ofProject(query.ProjectID),
		AnyKey:       query.KeyID == key.ID{},
		OfKey:        ident.UUID(query.KeyID),
		OfModel:      query.Model,
		FromDay:      postgres.Day(query.From, pgtype.NegativeInfinity),
		ToDay:        postgres.Day(query.To, pgtype.Infinity),
		AfterDay:     postgres.Day(after.Day, pgtype.Finite),
		AfterAccount: ident.UUID(after.AccountID),
		AfterProject: ident.UUID(after.ProjectID),
		AfterKey:     ident.UUID(after.KeyID),
		AfterModel:   after.Model,
		AfterTier:    after.ServiceTier,
		FirstPage:    query.After == nil,
		RowLimit:     int32(query.Limit),
	})
	totals := make([]usage.Total, len(rows))
	for i := range rows {
		totals[i] = toTotal((*sqlcgen.UsageTotalsByDayRow)(&rows[i]))
	}

	return totals, err
}

// readZonedTotals reads totals of one account, by days that are not those of the roll-ups.
func readZonedTotals(ctx context.Context, q *sqlcgen.Queries, query *usage.TotalQuery) ([]usage.Total, error) {
	starts := query.StartsOfDays()
	from, to := starts[0], starts[len(starts)-1]
	dropped, err := q.UsageDropped(ctx, sqlcgen.UsageDroppedParams{FromMoment: from, ToMoment: to})
	if err != nil {
		return nil, err
	}
	if dropped {
		return nil, usage.ErrRecordsDropped
	}

	ids := make([]ident.UUID, len(starts))
	for i, start := range starts {
		ids[i] = postgres.LowestID(start)
	}

	after := afterOf(query)
	rows, err := q.ZonedUsageTotals(ctx, sqlcgen.ZonedUsageTotalsParams{
		ByDay:        query.By.Day,
		ByAccount:    query.By.Account,
		ByProject:    query.By.Project,
		ByKey:        query.By.Key,
		ByModel:      query.By.Model,
		ByTier:       query.By.ServiceTier,
		FirstDay:     postgres.Day(query.From, pgtype.Finite),
		Booked:       query.Booked,
		Moments:      starts,
		Ids:          ids,
		OfAccount:    ident.UUID(query.AccountID),
		AnyProject:   query.ProjectID == project.ID{},
		OfProject:    ofProject(query.ProjectID),
		AnyKey:       query.KeyID == key.ID{},
		OfKey:        ident.UUID(query.KeyID),
		OfModel:      query.Model,
		FromMoment:   from,
		ToMoment:     to,
		FromID:       ids[0],
		ToID:         ids[len(ids)-1],
		AfterDay:     postgres.Day(after.Day, pgtype.Finite),
		AfterProject: ident.UUID(after.ProjectID),
		AfterKey:     ident.UUID(after.KeyID),
		AfterModel:   after.Model,
		AfterTier:    after.ServiceTier,
		FirstPage:    query.After == nil,
		RowLimit:     int32(query.Limit),
	})

	totals := make([]usage.Total, len(rows))
	for i := range rows {
		totals[i] = toTotal((*sqlcgen.UsageTotalsByDayRow)(&rows[i]))
	}

	return totals, err
}

// readModelTotals reads totals over all accounts and keys.
func readModelTotals(ctx context.Context, q *sqlcgen.Queries, query *usage.TotalQuery) ([]usage.Total, error) {
	after := afterOf(query)
	rows, err := q.ModelUsageTotals(ctx, sqlcgen.ModelUsageTotalsParams{
		ByDay:      query.By.Day,
		ByModel:    query.By.Model,
		ByTier:     query.By.ServiceTier,
		FromDay:    postgres.Day(query.From, pgtype.NegativeInfinity),
		ToDay:      postgres.Day(query.To, pgtype.Infinity),
		OfModel:    query.Model,
		AfterDay:   postgres.Day(after.Day, pgtype.Finite),
		AfterModel: after.Model,
		AfterTier:  after.ServiceTier,
		FirstPage:  query.After == nil,
		RowLimit:   int32(query.Limit),
	})
	totals := make([]usage.Total, len(rows))
	for i := range rows {
		totals[i] = toTotal((*sqlcgen.UsageTotalsByDayRow)(&rows[i]))
	}

	return totals, err
}

// wholeWeeks returns the first Monday and the end of the weeks that are whole in a
// period. If there is none, both are the end of the period.
func wholeWeeks(from, to pgtype.Date) (first, end pgtype.Date) {
	first, end = from, to
	if from.InfinityModifier == pgtype.Finite {
		first.Time = from.Time.AddDate(0, 0, (8-isoWeekday(from.Time))%7)
	}
	if to.InfinityModifier == pgtype.Finite {
		end.Time = to.Time.AddDate(0, 0, 1-isoWeekday(to.Time))
		if from.InfinityModifier == pgtype.Finite && !first.Time.Before(end.Time) {
			return to, to
		}
	}
	return first, end
}

// isoWeekday returns 1 for Monday to 7 for Sunday.
func isoWeekday(t time.Time) int { return (int(t.Weekday())+6)%7 + 1 }

func toTotal(row *sqlcgen.UsageTotalsByDayRow) usage.Total {
	return usage.Total{
		Day:       row.Day.Time,
		AccountID: account.ID(row.AccountID),
		ProjectID: project.ID(row.ProjectID),
		KeyID:     key.ID(row.KeyID),
		Model:     row.Model,

		ServiceTier: row.ServiceTier,
		Sums: usage.Sums{
			Requests:           row.Requests,
			Estimated:          row.Estimated,
			ClientGone:         row.ClientGone,
			Input:              row.Input,
			CachedInput:        row.CachedInput,
			CacheWrite:         row.CacheWrite,
			Output:             row.Output,
			Reasoning:          row.Reasoning,
			AudioIn:            row.AudioIn,
			AudioOut:           row.AudioOut,
			ImageIn:            row.ImageIn,
			ImageOut:           row.ImageOut,
			Images:             row.Images,
			Seconds:            row.Seconds,
			ServerToolRequests: row.ServerToolRequests,
			Cost:               money.Nano(row.Cost),
		},
	}
}
