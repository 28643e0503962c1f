-- name: TryLockTraffic :one
-- One control plane at a time writes minutes.
select pg_try_advisory_xact_lock(7310018);

-- name: WrittenTraffic :many
-- The minutes of a span that are written.
select minute, heard, silent from traffic_coverage where minute >= @from_time and minute < @to_time order by minute;

-- name: InsertTrafficCoverage :execrows
insert into traffic_coverage (minute, heard, silent) values (@minute, @heard, @silent) on conflict (minute) do nothing;

-- name: InsertTrafficMinute :exec
-- The rows are objects with the names of the columns.
insert into traffic_minutes (minute, measure, endpoint, model, provider, route, status, code, outcome, n, sum_ms, buckets)
select @minute::timestamptz, r.measure, r.endpoint, r.model, r.provider, r.route, r.status, r.code, r.outcome, r.n, r.sum_ms, r.buckets
from jsonb_to_recordset(@counts::jsonb) as r (measure text, endpoint text, model text, provider text, route text, status integer, code text, outcome text,
    n bigint, sum_ms bigint, buckets bigint[]);

-- name: AddTrafficHour :exec
insert into traffic_hours as h (hour, measure, endpoint, model, provider, route, status, code, outcome, n, sum_ms, buckets)
select @hour::timestamptz, r.measure, r.endpoint, r.model, r.provider, r.route, r.status, r.code, r.outcome, r.n, r.sum_ms, r.buckets
from jsonb_to_recordset(@counts::jsonb) as r (measure text, endpoint text, model text, provider text, route text, status integer, code text, outcome text,
    n bigint, sum_ms bigint, buckets bigint[])
on conflict (measure, hour, endpoint, model, provider, route, status, code, outcome) do update
set n = h.n + excluded.n, sum_ms = h.sum_ms + excluded.sum_ms, buckets = bigint_array_add(h.buckets, excluded.buckets);

-- name: AddRefusals :exec
insert into traffic_refusals as t (hour, account_id, key_id, code, status, other, n, first_at, last_at, request_id, model, short, reason)
select @hour::timestamptz, r.account_id, r.key_id, r.code, r.status, r.other, r.n, r.first_at, r.last_at, r.request_id, r.model, r.short, coalesce(r.reason, '')
from jsonb_to_recordset(@refusals::jsonb) as r (account_id uuid, key_id uuid, code text, status integer, other boolean, n bigint, first_at timestamptz,
    last_at timestamptz, request_id text, model text, short jsonb, reason text)
on conflict (hour, account_id, key_id, code, status, other) do update
set n = t.n + excluded.n, first_at = least(t.first_at, excluded.first_at), last_at = greatest(t.last_at, excluded.last_at),
    request_id = excluded.request_id, model = excluded.model, short = excluded.short, reason = excluded.reason;

-- name: KeepTrafficPartitions :exec
select keep_traffic_partitions(now() - interval '7 days');

-- name: RemoveOldTraffic :exec
with hours as (delete from traffic_hours h where h.hour < now() - interval '400 days'),
    coverage as (delete from traffic_coverage c where c.minute < now() - interval '400 days')
delete from traffic_refusals r where r.hour < now() - interval '400 days';

-- name: TrafficByMinute :many
-- The sums of a measure in steps of some seconds, by one label; an empty outcome means all.
select date_bin(make_interval(secs => @step::float8), minute, '2000-01-01T00:00:00Z')::timestamptz as at,
    (case @by_label::text when 'endpoint' then endpoint when 'model' then model when 'provider' then provider when 'route' then route
        when 'status' then status::text when 'code' then code when 'outcome' then outcome else '' end)::text as label,
    bigint_sum(n)::bigint as n, bigint_sum(sum_ms)::bigint as sum_ms, coalesce(bigint_array_sum(buckets), '{}')::bigint[] as buckets
from traffic_minutes
where measure = @measure and minute >= @from_time and minute < @to_time and (@outcome::text = '' or outcome = @outcome)
group by 1, 2
order by 1, 2;

-- name: TrafficByHour :many
select date_bin(make_interval(secs => @step::float8), hour, '2000-01-01T00:00:00Z')::timestamptz as at,
    (case @by_label::text when 'endpoint' then endpoint when 'model' then model when 'provider' then provider when 'route' then route
        when 'status' then status::text when 'code' then code when 'outcome' then outcome else '' end)::text as label,
    bigint_sum(n)::bigint as n, bigint_sum(sum_ms)::bigint as sum_ms, coalesce(bigint_array_sum(buckets), '{}')::bigint[] as buckets
from traffic_hours
where measure = @measure and hour >= @from_time and hour < @to_time and (@outcome::text = '' or outcome = @outcome)
group by 1, 2
order by 1, 2;

-- name: TrafficCoverage :many
-- The written minutes in steps of some seconds, with the least number of proxies heard, and the greatest not heard.
select date_bin(make_interval(secs => @step::float8), minute, '2000-01-01T00:00:00Z')::timestamptz as at,
    count(*)::bigint as minutes, min(heard)::integer as heard, max(silent)::integer as silent
from traffic_coverage
where minute >= @from_time and minute < @to_time
group by 1
order by 1;

-- name: UsageByDay :many
-- Tokens and cost of settled requests by UTC day and, if wanted, model.
select used_on, (case when @by_model::boolean then model else '' end)::text as label,
    bigint_sum(cost)::bigint as cost, bigint_sum(input + cached_input + cache_write + output)::bigint as tokens
from usage_daily_models
where used_on >= @from_day and used_on < @to_day
group by 1, 2
order by 1, 2;

-- name: ListRefusals :many
-- Newest first; before is the id of the last row of the page before, 0 for the first page.
select * from traffic_refusals
where (@before::bigint = 0 or id < @before)
    and (sqlc.narg('account_id')::uuid is null or account_id = sqlc.narg('account_id'))
    and (sqlc.narg('key_id')::uuid is null or key_id = sqlc.narg('key_id'))
    and (sqlc.narg('project_id')::uuid is null or key_id in (select k.id from api_keys k where k.project_id = sqlc.narg('project_id')
        or sqlc.narg('project_id') = 'ffffffff-ffff-ffff-ffff-ffffffffffff' and k.project_id is null and k.account_id = sqlc.narg('account_id')))
    and (@code::text = '' or code = @code)
    and (@request_id::text = '' or request_id = @request_id)
    and hour >= date_trunc('hour', @from_time::timestamptz) and hour < @to_time::timestamptz
order by id desc
limit @max_rows;
