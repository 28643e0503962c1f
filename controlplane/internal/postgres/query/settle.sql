-- Settlement: usage events to usage records, pools and ledger.

-- name: UsageSpan :one
-- The range of request ids that partitions cover. The lowest is included, the highest is not.
select usage_lowest() as lowest, usage_highest() as highest, clock_timestamp()::timestamptz as now;

-- name: EnsureUsagePartitions :one
select ensure_usage_partitions(now() - interval '1 day', now() + interval '70 days');

-- name: PoolsOfEvents :many
-- The pools that an event charges: its account's balance and its key's limit.
select k.id as key_id, k.account_id, b.id as balance_pool, l.id as limit_pool
from api_keys k
join pools b on b.account_id = k.account_id and b.kind = 1 and b.key_id is null
join pools l on l.key_id = k.id and l.kind = 2
where k.id = any(@key_ids::uuid[]);

-- name: ProjectsOfEvents :many
-- The accounts of the projects that events name.
select id, account_id from projects where id = any(@ids::uuid[]);

-- name: SettledSeqs :many
-- The sessions' settled sequence numbers, without a lock.
select s.id, coalesce((select jsonb_agg(jsonb_build_array(lower(r), upper(r) - 1) order by lower(r)) from unnest(s.settled_seqs) as r), '[]')::jsonb as ranges
from proxy_sessions s
where s.id = any(@ids::bigint[]);

-- name: TransactionTime :one
-- The time at which this transaction began. It is also the time of its records and of its ledger transaction.
select now()::timestamptz as began;

-- name: UpdateRollups :exec
-- Adds the sums of new records to the roll-ups.
select update_rollups(array(
    select (t.account_id, (now() at time zone 'utc')::date, t.used_on, t.key_id, t.project_id, t.model, t.service_tier, t.requests, t.estimated, t.client_gone, t.input, t.cached_input, t.cache_write,
        t.output, t.reasoning, t.audio_in, t.audio_out, t.image_in, t.image_out, t.images, t.seconds, t.server_tool_requests, t.cost)::usage_daily
    from (
        select unnest(@account_ids::uuid[]) as account_id, unnest(@used_on::date[]) as used_on, unnest(@key_ids::uuid[]) as key_id, unnest(@project_ids::uuid[]) as project_id,
            unnest(@models::text[]) as model, unnest(@service_tiers::text[]) as service_tier,
            unnest(@requests::bigint[]) as requests, unnest(@estimated::bigint[]) as estimated, unnest(@client_gone::bigint[]) as client_gone, unnest(@input::bigint[]) as input,
            unnest(@cached_input::bigint[]) as cached_input, unnest(@cache_write::bigint[]) as cache_write, unnest(@output::bigint[]) as output,
            unnest(@reasoning::bigint[]) as reasoning, unnest(@audio_in::bigint[]) as audio_in, unnest(@audio_out::bigint[]) as audio_out,
            unnest(@image_in::bigint[]) as image_in, unnest(@image_out::bigint[]) as image_out, unnest(@images::bigint[]) as images,
            unnest(@seconds::bigint[]) as seconds, unnest(@server_tool_requests::bigint[]) as server_tool_requests, unnest(@costs::bigint[]) as cost
    ) as t
));

-- name: SettledCharges :many
-- What the fingerprints of settled events are computed from. A join, because a list of thousands of ids takes seconds to plan.
select r.request_id, r.account_id, r.key_id, r.model, r.usage, r.price_version, r.cost
from unnest(@request_ids::uuid[]) as e (request_id)
join usage_records r on r.request_id = e.request_id;

-- name: QuarantineEvents :exec
insert into quarantine (session_id, seq, request_id, reason, payload)
select unnest(@session_ids::bigint[]), unnest(@seqs::bigint[]), unnest(@request_ids::text[]), unnest(@reasons::text[]), unnest(@payloads::bytea[])
on conflict do nothing;

-- name: InsertUsageTransaction :exec
insert into ledger_transactions (id, kind, reference, actor) values (@id, 'usage', @reference, 'settler');

-- name: InsertUsageEntries :exec
-- One statement, so that the check of the sum sees all entries.
insert into ledger_entries (transaction_id, kind, line, ledger_account, account_id, amount)
select @transaction_id::uuid, 'usage', unnest(@lines::integer[]), unnest(@ledger_accounts::text[]), nullif(unnest(@account_ids::uuid[]), '00000000-0000-0000-0000-000000000000'), unnest(@amounts::bigint[]);

-- name: LockSettledSeqs :exec
-- An advisory lock per session, so that only one settlement at a time writes a session's settled sequence numbers. The
-- caller must already hold a key-share lock of the session's row. Without the advisory lock, settlements that upgrade their
-- key-share locks could deadlock. Without the key-share lock, the holder of the advisory lock could wait for a transaction
-- that closes the session, which waits for settlements that wait for the advisory lock.
select pg_advisory_xact_lock(7310026, s.id) from (select distinct (id % 2147483647)::integer as id from unnest(@ids::bigint[]) as id order by 1) as s;

-- name: AddSettledSeqs :many
-- Adds ranges of sequence numbers to those of each session. Sessions are updated in the order of ids.
with seqs as (
    select session_id, range_agg(int8range(lowest, highest, '[]')) as settled
    from (select unnest(@session_ids::bigint[]) as session_id, unnest(@lowest::bigint[]) as lowest, unnest(@highest::bigint[]) as highest) as e
    group by session_id
), locked as (
    select s.id from proxy_sessions s join seqs on seqs.session_id = s.id order by s.id for no key update of s
)
update proxy_sessions s
set settled_seqs = s.settled_seqs + seqs.settled
from seqs, locked
where s.id = seqs.session_id and s.id = locked.id
returning s.id, (select jsonb_agg(jsonb_build_array(lower(r), upper(r) - 1) order by lower(r)) from unnest(s.settled_seqs) as r)::jsonb as ranges;

-- name: PriceVersions :many
select version, model_id, sheet from model_prices where version = any(@versions::bigint[]);

-- name: ProviderPrices :many
-- The providers' prices that were in force at any time of a span: the last one from before it, and those that began in it.
select p.version, p.route_id, p.sheet, p.effective_from
from unnest(@routes::text[]) as r (route_id)
join provider_prices p on p.route_id = r.route_id
where p.effective_from <= @to_time
    and p.version >= coalesce((
        select q.version from provider_prices q
        where q.route_id = r.route_id and q.effective_from <= @from_time
        order by q.version desc
        limit 1
    ), 0)
order by p.version;

-- name: WithoutLease :many
-- Those of the accounts and sessions in which no request of the account can have been admitted: the session is active, has
-- begun after the last loss of commits, and holds no lease of the account. Leases are granted before their requests run and
-- are removed after the session was closed.
select s.id as session_id, e.account_id::uuid as account_id
from (select unnest(@session_ids::bigint[]) as session_id, unnest(@account_ids::uuid[]) as account_id) as e
join proxy_sessions s on s.id = e.session_id
cross join cluster_state c
where s.state = 1 and (c.lost_at is null or s.registered_at > c.lost_at)
    and not exists (
        select from pools p
        where p.account_id = e.account_id and p.kind in (1, 3) and p.key_id is null
            and (p.unlimited or exists (select from leases l where l.pool_id = p.id and l.session_id = e.session_id))
    );

-- name: SessionOwners :many
-- Whether each session is one of the given proxy; unknown sessions are left out.
select s.id as session_id, e.proxy::text as proxy, (s.name = e.proxy)::boolean as owner
from (select unnest(@session_ids::bigint[]) as session_id, unnest(@proxies::text[]) as proxy) as e
join proxy_sessions s on s.id = e.session_id;

-- name: QuarantinedBefore :many
-- The reasons for which these events are in quarantine.
select q.session_id, q.seq, q.reason, q.payload, q.resolution
from quarantine q
join (select unnest(@session_ids::bigint[]) as session_id, unnest(@seqs::bigint[]) as seq) as e on e.session_id = q.session_id and e.seq = q.seq;
