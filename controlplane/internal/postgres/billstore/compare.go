package billstore

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/providerbill"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
)

// pairs joins the lines of a bill with the records of its provider by the provider's id of the request, and sums the lines without one
// by day, model and credential. Records from days around the bill are read, too: a request of 23:59 may be billed on the next day. A
// record without an id of the provider is in a pair of its own, and so is a call that did not serve its request but may be charged. The
// tokens of a record are counted as exports count them.
const pairs = `
with lines as (
	select request_id, count(*) as n, min(day) as day, min(model) as model, min(credential) as credential,
		sum(amount)::bigint as amount, sum(rest)::bigint as rest, min(amount) as first, sum(least(amount, 0))::bigint as negative
	from (select request_id, day, model, credential, case $2::text when 'tokens' then input + output else amount end as amount, rest
		from provider_bill_lines where bill_id = $1 and request_id <> '' and day between $3::date - 2 and $4::date + 2) l
	group by request_id
), made as (
	select provider_request_id, request_id, finished_at, route, model, credential, usage, provider_cost, estimated,
		status in ('client_gone', 'revoked', 'aborted') as cancelled
	from usage_records
	where request_id >= uuid_floor($3::date - interval '3 days') and request_id < uuid_floor($4::date + interval '3 days') and provider = $5
	union all
	select coalesce(a ->> 'provider_request_id', ''), r.request_id, r.finished_at, coalesce(a ->> 'route', ''), r.model,
		coalesce(a ->> 'credential_name', ''), (a -> 'usage')::json, (a ->> 'provider_cost')::bigint,
		coalesce((a ->> 'estimated')::boolean, false), true
	from usage_records r cross join lateral jsonb_array_elements(r.attempts) a
	where r.request_id >= uuid_floor($3::date - interval '3 days') and r.request_id < uuid_floor($4::date + interval '3 days')
		and r.attempts is not null and a ->> 'provider' = $5 and a ? 'usage'
), calls as (
	select coalesce(nullif(provider_request_id, ''), request_id::text) as provider_id, count(*) as n,
		min(request_id::text)::uuid as request_id,
		max(finished_at) as at, min(route) as route, min(model) as model, min(credential) as credential,
		sum(case $2::text when 'tokens' then coalesce((usage ->> 'input')::bigint, 0) + coalesce((usage ->> 'cached_input')::bigint, 0)
			+ coalesce((usage ->> 'cache_write_5m')::bigint, 0) + coalesce((usage ->> 'cache_write_1h')::bigint, 0)
			+ coalesce((usage ->> 'cache_write_30m')::bigint, 0) + coalesce((usage ->> 'cache_write_12h')::bigint, 0)
			+ coalesce((usage ->> 'cache_write_other')::bigint, 0) + coalesce((usage ->> 'output')::bigint, 0)
			else coalesce(provider_cost, 0) end)::bigint as recorded,
		bool_or(estimated) as estimated, bool_or(cancelled) as cancelled,
		bool_or($2::text <> 'tokens' and provider_cost is null) as no_price
	from made
	where $6::text = '' or credential = $6::text
	group by 1
)
select coalesce(l.n, 0), l.day, coalesce(l.model, ''), coalesce(l.credential, ''), l.n is not null,
	coalesce(l.amount, 0), coalesce(l.rest, 0), coalesce(l.first, 0), coalesce(l.negative, 0), 0,
	coalesce(c.n, 0), c.request_id, coalesce(c.provider_id, l.request_id), c.at, coalesce(c.route, ''), coalesce(c.model, ''),
	coalesce(c.credential, ''), coalesce(c.recorded, 0), coalesce(c.estimated, false), coalesce(c.cancelled, false),
	coalesce(c.no_price, false)
from lines l full join calls c on l.request_id = c.provider_id
union all
select sum(n)::bigint, day, model, credential, false, sum(n * amount)::bigint, sum(n * rest)::bigint, min(amount),
	sum(n * least(amount, 0))::bigint, sum((n - 1) * greatest(amount, 0))::bigint,
	0, null, '', null, '', '', '', 0, false as estimated, false as cancelled, false as no_price
from (select count(*) as n, day, model, credential, case $2::text when 'tokens' then input + output else amount end as amount, rest
	from provider_bill_lines where bill_id = $1 and request_id = '' and day between $3::date - 2 and $4::date + 2
	group by day, model, credential, amount, rest, requests, input, output) equal
group by day, model, credential`

// pairRow is a row of pairs as Postgres returns it.
type pairRow struct {
	day          pgtype.Date
	at           *time.Time
	requestID    *ident.UUID
	amount, rest int64
	route        string
}

// Pairs holds a connection, and no transaction that writes, until all pairs are read.
func (s *Store) Pairs(ctx context.Context, scope *providerbill.Scope) iter.Seq2[*providerbill.Pair, error] {
	return func(yield func(*providerbill.Pair, error) bool) {
		err := s.readPairs(ctx, scope, func(p *providerbill.Pair) bool { return yield(p, nil) })
		if err != nil {
			yield(nil, postgres.Translate("compare a bill", err))
		}
	}
}

func (s *Store) readPairs(ctx context.Context, scope *providerbill.Scope, yield func(*providerbill.Pair) bool) error {
	routes, err := s.db.Queries().RouteModels(ctx, scope.Bill.Provider)
	if err != nil {
		return err
	}
	models := make(map[string]string, len(routes))
	for _, r := range routes {
		models[r.ID] = r.Model
	}

	rows, err := s.db.Pool().Query(
		ctx,
		pairs,
		scope.Bill.ID,
		string(scope.Bill.Unit),
		scope.From,
		scope.To,
		scope.Bill.Provider,
		scope.Credential,
	)
	if err != nil {
		return fmt.Errorf("query pairs: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var p providerbill.Pair
		var r pairRow
		err := rows.Scan(&p.Lines, &r.day, &p.Model, &p.Credential, &p.ByRequest, &r.amount, &r.rest, &p.First, &p.Negative, &p.Repeated,
			&p.Calls, &r.requestID, &p.ProviderRequestID, &r.at, &r.route, &p.CalledModel, &p.CalledCredential, &p.Recorded,
			&p.Estimated, &p.Cancelled, &p.NoPrice)
		if err != nil {
			return fmt.Errorf("scan pair: %w", err)
		}
		p.Day, p.Billed = r.day.Time, providerbill.SumOf(money.Nano(r.amount), r.rest)
		if p.Calls > 0 {
			p.RequestID, p.At = ident.Request.Format(*r.requestID), *r.at
		}
		if model, known := models[r.route]; known { // else the route is gone
			p.CalledModel = model
		}
		if !yield(&p) {
			return nil
		}
	}
	return rows.Err()
}

var differenceColumns = []string{
	"bill_id", "number", "day", "model", "credential", "billed", "recorded", "lines", "calls", "open_amount", "parts",
}

func (s *Store) SetComparison(ctx context.Context, id ident.UUID, c *providerbill.Comparison) error {
	err := s.db.InTx(ctx, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		parts, err := encodeParts(c.Parts)
		if err != nil {
			return err
		}
		n, err := q.SetBillComparison(ctx, sqlcgen.SetBillComparisonParams{
			ID:           id,
			Billed:       int64(c.Billed),
			Recorded:     int64(c.Recorded),
			Calls:        c.Calls,
			OpenAmount:   int64(c.OpenAmount()),
			ByModel:      c.ByModel,
			ByCredential: c.ByCredential,
			Parts:        parts,
		})
		if err != nil {
			return err
		}
		if n == 0 {
			return pgx.ErrNoRows
		}
		if err := q.DeleteBillDifferences(ctx, id); err != nil {
			return err
		}
		_, err = tx.CopyFrom(ctx, pgx.Identifier{"provider_bill_differences"}, differenceColumns,
			pgx.CopyFromSlice(len(c.Differences), func(i int) ([]any, error) {
				d := &c.Differences[i]
				parts, err := encodeParts(d.Parts)
				return []any{
					id, d.Number, d.Day, d.Model, d.Credential, int64(d.Billed), int64(d.Recorded), d.Lines, d.Calls,
					int64(d.OpenAmount()), parts,
				}, err
			}))
		if err != nil {
			return fmt.Errorf("copy differences: %w", err)
		}
		return nil
	})
	return postgres.NotFoundAs("write a comparison", err, providerbill.ErrNotFound)
}

func encodeParts(parts []providerbill.Part) ([]byte, error) {
	if parts == nil {
		parts = []providerbill.Part{}
	}
	text, err := json.Marshal(parts)
	if err != nil {
		return nil, fmt.Errorf("encode parts: %w", err)
	}
	return text, nil
}

func (s *Store) Differences(ctx context.Context, id ident.UUID, query *providerbill.DifferenceQuery) ([]providerbill.Difference, error) {
	on := pgtype.Date{Time: query.Day, Valid: !query.Day.IsZero()}
	rows, err := s.db.Queries().ListBillDifferences(ctx, sqlcgen.ListBillDifferencesParams{
		BillID:      id,
		AfterNumber: query.AfterNumber,
		AfterOpen:   int64(query.AfterOpen),
		Kind:        string(query.Kind),
		OnlyOpen:    query.Open,
		Model:       query.Model,
		Credential:  query.Credential,
		Day:         on,
		RowLimit:    int32(query.Limit),
	})
	if err != nil {
		return nil, postgres.Translate("list differences", err)
	}
	found := make([]providerbill.Difference, len(rows))
	for i := range rows {
		if found[i], err = toDifference(&rows[i]); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func (s *Store) Difference(ctx context.Context, id ident.UUID, number int64) (*providerbill.Difference, error) {
	row, err := s.db.Queries().GetBillDifference(ctx, sqlcgen.GetBillDifferenceParams{BillID: id, Number: number})
	if err != nil {
		return nil, postgres.NotFoundAs("read a difference", err, providerbill.ErrNotFound)
	}
	found, err := toDifference(&row)
	return &found, err
}

func toDifference(r *sqlcgen.ProviderBillDifference) (providerbill.Difference, error) {
	d := providerbill.Difference{
		Number:     r.Number,
		Day:        r.Day.Time,
		Model:      r.Model,
		Credential: r.Credential,
		Billed:     money.Nano(r.Billed),
		Recorded:   money.Nano(r.Recorded),
		Lines:      r.Lines,
		Calls:      r.Calls,
	}
	if err := json.Unmarshal(r.Parts, &d.Parts); err != nil {
		return d, fmt.Errorf("read the parts of difference %d: %w", r.Number, err)
	}
	return d, nil
}
