-- Settlement: usage events to usage records, pools and ledger.

-- name: UsageSpan :one
-- The range of request ids that partitions cover: from the lowest, up to but not including the highest.
select usage_lowest() as lowest, usage_highest() as highest, clock_timestamp()::timestamptz as now;

-- name: EnsureUsagePartitions :one
select ensure_usage_partitions(now() - interval '1 day', now() + interval '70 days');

-- name: PoolsOfEvents :many
-- The pools that an event charges: its account's balance and its key's limit.
select k.id as key_id, k.account_id, b.id as balance_pool, l.id as limit_pool
from api_keys k
join pools b on b.account_id = k.account_id and b.kind = 1 and b.key_id is null
join pools l on l.key_id = k.id
where k.id = any(@key_ids::uuid[]);

-- name: SettledNumbers :many
-- What the sessions' settled numbers were a moment ago; it holds nobody off.
select s.id, coalesce((select jsonb_agg(jsonb_build_array(lower(r), upper(r) - 1) order by lower(r)) from unnest(s.settled) as r), '[]')::jsonb as ranges
from dataplane_sessions s
where s.id = any(@ids::bigint[]);

-- name: InsertUsage :exec
-- Records of requests that nothing speaks of having been settled. Without the clause for conflicts a row costs a quarter less.
-- What costs nothing has no ledger transaction.
insert into usage_records (
    request_id, session_id, n, account_id, key_id, model, format, provider, route, provider_request_id, status, http_status,
    stream, started_at, finished_at, first_byte_ms, usage, rule, estimated, price_version, cost, reserve, video_job, fingerprint, price_multiplier, transaction_id
)
select unnest(@request_ids::uuid[]), unnest(@session_ids::bigint[]), unnest(@ns::bigint[]), unnest(@account_ids::uuid[]), unnest(@key_ids::uuid[]),
    unnest(@models::text[]), unnest(@formats::text[]), unnest(@providers::text[]), unnest(@routes::text[]), unnest(@provider_request_ids::text[]),
    unnest(@statuses::text[]), unnest(@http_statuses::integer[]), unnest(@streams::boolean[]),
    unnest(@started_at::timestamptz[]), unnest(@finished_at::timestamptz[]), unnest(@first_byte_ms::bigint[]), unnest(@usages::jsonb[]),
    unnest(@rules::text[]), unnest(@estimated::boolean[]), unnest(@price_versions::bigint[]), unnest(@costs::bigint[]), unnest(@reserves::bigint[]),
    unnest(@video_jobs::text[]), unnest(@fingerprints::bytea[]), unnest(@price_multipliers::bigint[]), nullif(unnest(@transaction_ids::uuid[]), '00000000-0000-0000-0000-000000000000');

-- name: InsertDoubtfulUsage :many
-- Records of requests that may have been settled before; returns the new ones.
insert into usage_records (
    request_id, session_id, n, account_id, key_id, model, format, provider, route, provider_request_id, status, http_status,
    stream, started_at, finished_at, first_byte_ms, usage, rule, estimated, price_version, cost, reserve, video_job, fingerprint, price_multiplier, transaction_id
)
select unnest(@request_ids::uuid[]), unnest(@session_ids::bigint[]), unnest(@ns::bigint[]), unnest(@account_ids::uuid[]), unnest(@key_ids::uuid[]),
    unnest(@models::text[]), unnest(@formats::text[]), unnest(@providers::text[]), unnest(@routes::text[]), unnest(@provider_request_ids::text[]),
    unnest(@statuses::text[]), unnest(@http_statuses::integer[]), unnest(@streams::boolean[]),
    unnest(@started_at::timestamptz[]), unnest(@finished_at::timestamptz[]), unnest(@first_byte_ms::bigint[]), unnest(@usages::jsonb[]),
    unnest(@rules::text[]), unnest(@estimated::boolean[]), unnest(@price_versions::bigint[]), unnest(@costs::bigint[]), unnest(@reserves::bigint[]),
    unnest(@video_jobs::text[]), unnest(@fingerprints::bytea[]), unnest(@price_multipliers::bigint[]), nullif(unnest(@transaction_ids::uuid[]), '00000000-0000-0000-0000-000000000000')
on conflict (request_id) do nothing
returning request_id;

-- name: UsageFingerprints :many
select request_id, fingerprint from usage_records where request_id = any(@request_ids::uuid[]);

-- name: QuarantineEvents :exec
insert into quarantine (session_id, n, request_id, reason, payload)
select unnest(@session_ids::bigint[]), unnest(@ns::bigint[]), unnest(@request_ids::text[]), unnest(@reasons::text[]), unnest(@payloads::bytea[])
on conflict do nothing;

-- name: InsertUsageTransaction :exec
insert into ledger_transactions (id, kind, reference, actor) values (@id, 'usage', @reference, 'settler');

-- name: InsertUsageEntries :exec
-- One statement, so that the check of the sum sees all entries.
insert into ledger_entries (transaction_id, kind, line, book, account_id, amount)
select @transaction_id::uuid, 'usage', unnest(@lines::integer[]), unnest(@books::text[]), nullif(unnest(@account_ids::uuid[]), '00000000-0000-0000-0000-000000000000'), unnest(@amounts::bigint[]);

-- name: SettleNumbers :many
-- Adds ranges of numbers to each session's settled ones. Sessions are updated by rising id.
with numbers as (
    select session_id, range_agg(int8range(lowest, highest, '[]')) as settled
    from (select unnest(@session_ids::bigint[]) as session_id, unnest(@lowest::bigint[]) as lowest, unnest(@highest::bigint[]) as highest) as e
    group by session_id
), locked as (
    select s.id from dataplane_sessions s join numbers on numbers.session_id = s.id order by s.id for no key update of s
)
update dataplane_sessions s
set settled = s.settled + numbers.settled
from numbers, locked
where s.id = numbers.session_id and s.id = locked.id
returning s.id, (select jsonb_agg(jsonb_build_array(lower(r), upper(r) - 1) order by lower(r)) from unnest(s.settled) as r)::jsonb as ranges;
