package usagestore

import (
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"modelgateway/controlplane/internal/margin"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/usage"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
)

func (s *Usage) Margin(ctx context.Context, query *margin.Query) (margin.Report, error) {
	starts := query.StartsOfDays()
	ids := make([]ident.UUID, len(starts))
	for i, start := range starts {
		ids[i] = postgres.LowestID(start)
	}

	q := s.db.PlannedQueries()
	dropped, err := q.UsageDropped(ctx, sqlcgen.UsageDroppedParams{FromMoment: starts[0], ToMoment: starts[len(starts)-1]})
	if err != nil {
		return margin.Report{}, postgres.Translate("look for dropped usage", err)
	}
	if dropped {
		return margin.Report{}, usage.ErrRecordsDropped
	}

	p := sqlcgen.MarginParams{
		By:         string(query.By),
		FirstDay:   postgres.Day(query.From, pgtype.Finite),
		Ids:        ids,
		Floor:      ids[0],
		Ceiling:    ids[len(ids)-1],
		AccountID:  accountOrNil(query.AccountID),
		ProjectID:  projectOrNil(query.ProjectID),
		KeyID:      keyOrNil(query.KeyID),
		Model:      query.Model,
		Provider:   query.Provider,
		Route:      query.Route,
		Credential: query.Credential,
		FirstPage:  query.After == nil,
		RowLimit:   int32(query.Limit),
	}
	if after := query.After; after != nil {
		p.AfterMargin, p.AfterProvider, p.AfterName = int64(after.Margin), after.Provider, after.Name
	}

	rows, err := q.Margin(ctx, p)
	if err != nil {
		return margin.Report{}, postgres.Translate("compute margin", err)
	}

	var report margin.Report
	for i := range rows {
		sums := toMargin(&rows[i])
		if rows[i].IsTotal {
			report.Total = sums
			continue
		}
		report.Lines = append(report.Lines, margin.Line{
			Name:     rows[i].Name,
			Provider: rows[i].Provider,
			Label:    rows[i].Label,
			Route:    margin.Route{Model: rows[i].RouteModel, Provider: rows[i].RouteProvider},
			Sums:     sums,
		})
	}

	slices.SortFunc(report.Lines, func(a, b margin.Line) int { // a union has no order
		return cmp.Or(cmp.Compare(a.Margin(), b.Margin()), cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Name, b.Name))
	})
	return report, nil
}

func toMargin(r *sqlcgen.MarginRow) margin.Sums {
	return margin.Sums{
		Requests:       r.Requests,
		Charged:        money.Nano(r.Charged),
		ProviderCost:   money.Nano(r.ProviderCost),
		Loss:           money.Nano(r.Loss),
		Unknown:        r.Unknown,
		UnknownCharged: money.Nano(r.UnknownCharged),
	}
}
