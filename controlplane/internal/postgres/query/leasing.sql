-- The control plane's side of the lease protocol. All transactions lock in the same
-- order: sessions by id, then pools by id, then leases. A transaction that has
-- locked pools may take a stronger lock of a session row only if it already holds a
-- shared lock of it: then no other transaction can hold an exclusive lock of the
-- row and wait for the pools.

-- name: ShareSessions :many
-- A key-share lock blocks the closing of a session, but neither heartbeats nor settlement.
select id, boot_id, state, extract(epoch from valid_until - clock_timestamp())::float8 as left_seconds, applied_revision
from proxy_sessions
where id = any(@ids::bigint[])
order by id
for key share;

-- name: ShareFreeSessions :many
-- Like ShareSessions, without the sessions whose rows another transaction holds.
select id, boot_id, state, extract(epoch from valid_until - clock_timestamp())::float8 as left_seconds, applied_revision
from proxy_sessions
where id = any(@ids::bigint[])
order by id
for key share skip locked;

-- name: ExistingSessions :many
select id from proxy_sessions where id = any(@ids::bigint[]);

-- name: LockPools :many
select id, kind, unlimited, central, generation, total, free, settled, overrun, late, account_id, key_id, limit_number, low_balance_threshold, limit_alert_percent, raised_alarms,
    coalesce((extract(epoch from ends_at) * 1000)::bigint, 0)::bigint as end_ms, coalesce(ends_at <= clock_timestamp(), false)::boolean as ended,
    raised_by, coalesce((extract(epoch from raised_until) * 1000)::bigint, 0)::bigint as raised_until_ms, (extract(epoch from clock_timestamp()) * 1000)::bigint as now_ms,
    attributed, uncovered, expiring, peak, coalesce(next_expiry <= clock_timestamp(), false)::boolean as expiry_due
from pools
where id = any(@ids::bigint[])
order by id
for no key update;

-- name: LockFreePools :many
-- Like LockPools, without the pools whose rows another transaction holds.
select id, kind, unlimited, central, generation, total, free, settled, overrun, late, account_id, key_id, limit_number, low_balance_threshold, limit_alert_percent, raised_alarms,
    coalesce((extract(epoch from ends_at) * 1000)::bigint, 0)::bigint as end_ms, coalesce(ends_at <= clock_timestamp(), false)::boolean as ended,
    raised_by, coalesce((extract(epoch from raised_until) * 1000)::bigint, 0)::bigint as raised_until_ms, (extract(epoch from clock_timestamp()) * 1000)::bigint as now_ms,
    attributed, uncovered, expiring, peak, coalesce(next_expiry <= clock_timestamp(), false)::boolean as expiry_due
from pools
where id = any(@ids::bigint[])
order by id
for no key update skip locked;

-- name: ExistingPools :many
select id from pools where id = any(@ids::bigint[]);

-- name: LockAccountPool :one
select id, kind, unlimited, central, generation, total, free, settled, overrun, late, account_id, key_id, limit_number, low_balance_threshold, limit_alert_percent, raised_alarms,
    coalesce((extract(epoch from ends_at) * 1000)::bigint, 0)::bigint as end_ms, coalesce(ends_at <= clock_timestamp(), false)::boolean as ended,
    raised_by, coalesce((extract(epoch from raised_until) * 1000)::bigint, 0)::bigint as raised_until_ms, (extract(epoch from clock_timestamp()) * 1000)::bigint as now_ms,
    attributed, uncovered, expiring, peak, coalesce(next_expiry <= clock_timestamp(), false)::boolean as expiry_due
from pools
where account_id = @account_id and kind = @kind and kind <> 2 and key_id is null
for no key update;

-- name: LockKeyPool :one
select id, kind, unlimited, central, generation, total, free, settled, overrun, late, account_id, key_id, limit_number, low_balance_threshold, limit_alert_percent, raised_alarms,
    coalesce((extract(epoch from ends_at) * 1000)::bigint, 0)::bigint as end_ms, coalesce(ends_at <= clock_timestamp(), false)::boolean as ended,
    raised_by, coalesce((extract(epoch from raised_until) * 1000)::bigint, 0)::bigint as raised_until_ms, (extract(epoch from clock_timestamp()) * 1000)::bigint as now_ms,
    attributed, uncovered, expiring, peak, coalesce(next_expiry <= clock_timestamp(), false)::boolean as expiry_due
from pools
where key_id = @key_id::uuid and kind = @kind
for no key update;

-- name: ResizePool :exec
-- Changes the total of a pool, with its free units and its mode.
update pools
set total = @total, unlimited = @unlimited, free = @free, central = @central, generation = @generation,
    peak = @peak, raised_by = @raised_by, raised_until = sqlc.narg('raised_until')
where id = @id;

-- name: LockLeases :many
select pool_id, session_id, granted, returned, charged, recalled_generation
from leases
where pool_id = any(@pool_ids::bigint[])
    and session_id = any(@session_ids::bigint[])
order by pool_id, session_id
for no key update;

-- name: LeaseHolders :many
-- The active sessions with outstanding units of some pools: until a session is fenced, its proxy may admit requests.
select l.pool_id, l.session_id, l.recalled_generation
from leases l
join proxy_sessions s on s.id = l.session_id
where l.pool_id = any(@pool_ids::bigint[])
    and l.granted - l.returned - l.charged > 0
    and s.state = 1;

-- name: CountLiveProxies :one
-- The live proxies: one that opens ever more sessions must not make the shares of the others smaller.
select count(distinct name) from proxy_sessions where state = 1 and valid_until >= clock_timestamp();

-- name: LeaseResponses :many
select o.session_id, o.account_id, o.request_number, o.response
from lease_responses o
join (select unnest(@session_ids::bigint[]) as session_id, unnest(@account_ids::uuid[]) as account_id) as k
    on k.session_id = o.session_id and k.account_id = o.account_id;

-- name: UpdatePools :exec
update pools p
set total = n.total, free = n.free, settled = n.settled, overrun = n.overrun, late = n.late, central = n.central, generation = n.generation,
    raised_by = n.raised_by, raised_until = case when n.raised_by > 0 then p.raised_until end
from (
    select unnest(@ids::bigint[]) as id, unnest(@total::bigint[]) as total, unnest(@free::bigint[]) as free, unnest(@settled::bigint[]) as settled, unnest(@overrun::bigint[]) as overrun,
        unnest(@late::bigint[]) as late, unnest(@central::boolean[]) as central, unnest(@generation::bigint[]) as generation, unnest(@raised_by::bigint[]) as raised_by
) as n
where p.id = n.id;

-- name: UpsertLeases :exec
insert into leases (pool_id, session_id, granted, returned, charged, recalled_generation)
select unnest(@pool_ids::bigint[]), unnest(@session_ids::bigint[]), unnest(@granted::bigint[]), unnest(@returned::bigint[]), unnest(@charged::bigint[]), unnest(@recalled_generation::bigint[])
on conflict (pool_id, session_id) do update
set granted = excluded.granted, returned = excluded.returned, charged = excluded.charged, recalled_generation = excluded.recalled_generation;

-- name: UpsertLeaseResponses :exec
insert into lease_responses (session_id, account_id, request_number, response)
select unnest(@session_ids::bigint[]), unnest(@account_ids::uuid[]), unnest(@request_numbers::bigint[]), unnest(@responses::bytea[])
on conflict (session_id, account_id) do update
set request_number = excluded.request_number, response = excluded.response;

-- name: ReadClusterState :one
-- Without a lock: an administrative change holds one until it commits, and registrations and heartbeats must not wait for
-- it. A declared loss excludes them by the commit markers.
select revision, cluster_epoch, stream_incarnation from cluster_state;

-- name: InsertSession :one
insert into proxy_sessions (name, boot_id, build, spool_capacity, applied_revision, window_ms, valid_until)
values (@name, @boot_id, @build, @spool_capacity, @applied_revision, @window_ms, clock_timestamp() + make_interval(secs => @valid_seconds::float8))
returning id;

-- name: KeyWithoutMAC :one
-- Whether a key, or the previous secret of one, may have no MAC under one of these peppers: it was imported as a hash, or issued
-- under another one.
select (exists (
    select from api_keys
    where revoked_at is null and (ciphertext is null or pepper_id is null or pepper_id <> all(@peppers::text[]))
) or exists (
    select from key_hashes h
    join api_keys k on k.id = h.key_id
    where h.secret = 'previous' and k.previous_until > now() and k.revoked_at is null
        and (h.hash_only or h.pepper_id is null or h.pepper_id <> all(@peppers::text[]))
))::boolean;

-- name: LockSessionForHeartbeat :one
-- Lease batches and settlement can share the session meanwhile.
select boot_id, state, ending, extract(epoch from valid_until - clock_timestamp())::float8 as left_seconds, applied_revision
from proxy_sessions
where id = @id
for no key update;

-- name: ExtendSession :exec
update proxy_sessions
set valid_until = clock_timestamp() + make_interval(secs => @valid_seconds::float8), last_heartbeat_at = clock_timestamp(),
    applied_revision = @applied_revision, catalog_revision = @catalog_revision, running = @running, started = greatest(started, @started), spool_used = @spool_used, draining = @draining,
    refused_credentials = @refused_credentials
where id = @id;

-- name: ChangesAfter :many
select c.revision, c.previous_revision, c.kind, c.lookup_hash, c.account_id
from key_changes c
where c.revision > @revision
order by c.revision
limit @max_rows;

-- name: StreamedRevision :one
select streamed_revision from cluster_state;

-- name: RaiseStreamedRevision :exec
update cluster_state set streamed_revision = @revision::bigint where streamed_revision < @revision;

-- name: ActiveSessions :many
select id, name, applied_revision, window_ms
from proxy_sessions
where state = 1;

-- name: EndSession :exec
-- The silence of a process that has requests running in the session begins again.
update proxy_sessions
set
    state = @state, final_count = coalesce(sqlc.narg('final_count'), final_count),
    valid_until = case when @running::boolean then greatest(valid_until, clock_timestamp()) else valid_until end
where id = @id;

-- name: CountSettled :one
select coalesce((select sum(upper(r) - lower(r)) from unnest(s.settled_seqs) as r), 0)::bigint as settled_count
from proxy_sessions s
where s.id = @id;

-- name: LockSession :one
select boot_id, state, ending, extract(epoch from valid_until - clock_timestamp())::float8 as left_seconds, applied_revision
from proxy_sessions
where id = @id
for update;

-- name: PoolsOfSession :many
-- The pools of which a session holds units.
select pool_id from leases
where session_id = @session_id and granted - returned - charged > 0
order by pool_id
limit @max_rows;

-- name: ExpiredSessions :many
-- Skips rows that another transaction has locked, since that transaction may lock in another order. The next sweep marks
-- them.
select id, extract(epoch from valid_until - clock_timestamp())::float8 as left_seconds
from proxy_sessions
where state = 1 and not ending and valid_until < clock_timestamp()
order by id
for no key update skip locked;

-- name: EndSessions :exec
-- The sessions are fenced when the stream of changes has confirmed it.
update proxy_sessions set ending = true where id = any(@ids::bigint[]);

-- name: EndingSessions :many
select id, window_ms from proxy_sessions where state = 1 and ending order by id;

-- name: RecoveringEpoch :one
-- The cluster epoch while the recovery wait lasts; otherwise zero.
select case when recovered_epoch < cluster_epoch then cluster_epoch else 0 end::bigint from cluster_state;

-- name: LongestWindow :one
select coalesce(max(window_ms), 0)::bigint from proxy_sessions where state = 1;

-- name: FenceEndingSessions :execrows
with over as (
    select id from proxy_sessions
    where id = any(@ids::bigint[]) and state = 1 and ending
    order by id
    for no key update skip locked
)
update proxy_sessions s set state = 2 from over where s.id = over.id;

-- name: FencedSessions :many
-- The sessions with the oldest heartbeats first.
select id, extract(epoch from valid_until - clock_timestamp())::float8 as left_seconds
from proxy_sessions
where state = 2
order by valid_until
limit 100;

-- name: LoadKeys :many
-- One statement, so that revision and records are read in one snapshot.
select w.hash::bytea as lookup_hash, m.cluster_epoch, m.revision, k.id as key_id, k.account_id, k.project_id,
    coalesce(k.revoked_at is null and a.status = 'active', false)::boolean as active,
    b.id as balance_pool, s.id as slots_pool, coalesce(case when l.unlimited then 0 else l.id end, 0)::bigint as limit_pool,
    coalesce((select c.id from pools c where c.key_id = k.id and c.kind = 3 and k.max_concurrent_requests is not null), 0)::bigint as key_slots_pool,
    coalesce(k.max_concurrent_requests, 0)::bigint as key_max_concurrent_requests,
    coalesce(a.max_concurrent_requests, 0)::bigint as max_concurrent_requests,
    coalesce(a.price_multiplier, 0)::bigint as price_multiplier, coalesce(a.model_multipliers, '{}')::jsonb as model_multipliers,
    coalesce(a.include_cost, false)::boolean as include_cost,
    k.expires_at, coalesce(k.paused, false)::boolean as paused, coalesce(k.models, '[]')::jsonb as models, coalesce(k.networks, '[]')::jsonb as networks,
    coalesce((
        select jsonb_agg(jsonb_build_object('id', x.number, 'name', 'lim_' || replace(x.id::text, '-', ''), 'scope', case when x.key_id is not null then 'key' when x.project_id is not null then 'project' else 'account' end, 'models', x.models, 'window', jsonb_build_object(
            'period', x.period, 'time_zone', x.time_zone, 'length_seconds', x.length_seconds, 'anchor_unix', x.anchor_unix), 'newest', (
                select jsonb_build_object('number', w.id & 16777215, 'start_ms', (extract(epoch from w.starts_at) * 1000)::bigint, 'end_ms', (extract(epoch from w.ends_at) * 1000)::bigint)
                from pools w where w.limit_number = x.number and x.period = 'first_use' order by w.id desc limit 1)) order by x.key_id is null, x.project_id is null, x.number)
        from limits x where x.account_id = a.id and (x.key_id = k.id or x.project_id = k.project_id or (x.key_id is null and x.project_id is null)) and x.removed_at is null), '[]')::jsonb as limits,
    case when h.secret = 'ended' or (h.secret = 'previous' and k.previous_until <= now()) then 1
        when h.secret = 'previous' then floor(extract(epoch from k.previous_until) * 1000)
        else 0 end::bigint as secret_until_ms
from cluster_state m
cross join unnest(@lookup_hashes::bytea[]) as w (hash)
left join key_hashes h on h.hash = w.hash
left join api_keys k on k.id = coalesce((select f.id from api_keys f where f.lookup_hash = w.hash), h.key_id)
left join accounts a on a.id = k.account_id
left join pools b on b.account_id = a.id and b.kind = 1 and b.key_id is null
left join pools s on s.account_id = a.id and s.kind = 3 and s.key_id is null
left join pools l on l.key_id = k.id and l.kind = 2;

-- name: ReadKeyRecord :one
-- The record of one key as LoadKeys has it. Without a key, that of a key of the account that has no spend limit.
select a.id as account_id, k.id as key_id, k.project_id, (a.status = 'active' and k.revoked_at is null)::boolean as active,
    (a.status = 'suspended')::boolean as suspended,
    b.id as balance_pool, s.id as slots_pool, coalesce(case when l.unlimited then 0 else l.id end, 0)::bigint as limit_pool,
    coalesce((select c.id from pools c where c.key_id = k.id and c.kind = 3 and k.max_concurrent_requests is not null), 0)::bigint as key_slots_pool,
    coalesce(k.max_concurrent_requests, 0)::bigint as key_max_concurrent_requests,
    coalesce(a.max_concurrent_requests, 0)::bigint as max_concurrent_requests, coalesce(a.price_multiplier, 0)::bigint as price_multiplier,
    coalesce(a.model_multipliers, '{}')::jsonb as model_multipliers,
    coalesce(a.include_cost, false)::boolean as include_cost,
    k.expires_at, coalesce(k.paused, false)::boolean as paused, coalesce(k.models, '[]')::jsonb as models, coalesce(k.networks, '[]')::jsonb as networks,
    coalesce((
        select jsonb_agg(jsonb_build_object('id', x.number, 'name', 'lim_' || replace(x.id::text, '-', ''), 'scope', case when x.key_id is not null then 'key' when x.project_id is not null then 'project' else 'account' end, 'models', x.models, 'window', jsonb_build_object(
            'period', x.period, 'time_zone', x.time_zone, 'length_seconds', x.length_seconds, 'anchor_unix', x.anchor_unix), 'newest', (
                select jsonb_build_object('number', w.id & 16777215, 'start_ms', (extract(epoch from w.starts_at) * 1000)::bigint, 'end_ms', (extract(epoch from w.ends_at) * 1000)::bigint)
                from pools w where w.limit_number = x.number and x.period = 'first_use' order by w.id desc limit 1)) order by x.key_id is null, x.project_id is null, x.number)
        from limits x where x.account_id = a.id and (x.key_id = k.id or x.project_id = k.project_id or (x.key_id is null and x.project_id is null)) and x.removed_at is null), '[]')::jsonb as limits
from accounts a
left join api_keys k on k.id = sqlc.narg('key_id')::uuid and k.account_id = a.id
join pools b on b.account_id = a.id and b.kind = 1 and b.key_id is null
join pools s on s.account_id = a.id and s.kind = 3 and s.key_id is null
left join pools l on l.key_id = k.id and l.kind = 2
where a.id = coalesce(sqlc.narg('account_id')::uuid, (select o.account_id from api_keys o where o.id = sqlc.narg('key_id')))
    and (sqlc.narg('key_id')::uuid is null or k.id is not null);

-- name: ReadBalance :one
select b.id as balance_pool, l.id as limit_pool, (b.total - b.settled)::bigint as balance, (b.total - b.free - b.settled)::bigint as reserved,
    (not l.unlimited)::boolean as limited, l.total as key_limit, l.settled as key_spent,
    (l.total - l.free - l.settled)::bigint as key_reserved
from pools b
join pools l on l.key_id = @key_id::uuid and l.account_id = b.account_id and l.kind = 2
where b.account_id = @account_id::uuid and b.kind = 1 and b.key_id is null;

-- name: UnusableWindows :many
-- Those of the pools of windows that do not exist, or that are not current within the tolerance.
select w.id::bigint as id, (p.id is null)::boolean as missing
from unnest(@ids::bigint[]) as w (id)
left join pools p on p.id = w.id
where p.id is null or clock_timestamp() < p.starts_at - make_interval(secs => @tolerance_seconds::float8) or clock_timestamp() >= p.ends_at + make_interval(secs => @tolerance_seconds::float8)
order by w.id;

-- name: ShareLimits :many
-- A change of a limit waits for the windows that are made of it, and they for the change. A removed limit has windows, too: requests
-- that reserved units of them may still run.
select l.number, l.account_id, l.key_id, l.period, l.time_zone, l.length_seconds, l.anchor_unix,
    (extract(epoch from clock_timestamp()) * 1000)::bigint as now_ms,
    (c.lost_at is not null and clock_timestamp() < c.lost_at + interval '1 hour')::boolean as after_loss,
    coalesce((extract(epoch from c.lost_at) * 1000)::bigint, 0)::bigint as lost_ms,
    coalesce(n.id, 0)::bigint as newest, coalesce((extract(epoch from n.starts_at) * 1000)::bigint, 0)::bigint as newest_start_ms,
    coalesce((extract(epoch from n.ends_at) * 1000)::bigint, 0)::bigint as newest_end_ms
from limits l
cross join cluster_state c
left join lateral (select p.id, p.starts_at, p.ends_at from pools p where p.limit_number = l.number order by p.id desc limit 1) as n on true
where l.number = any(@numbers::bigint[])
order by l.number
for share of l;

-- name: InsertWindows :exec
-- Another replica may just have made the same ones.
insert into pools (id, account_id, kind, limit_number, total, free, starts_at, ends_at, raised_by, raised_until)
overriding system value
select w.id, l.account_id, 2, l.number, l.amount + r.by, l.amount + r.by, to_timestamp(w.start_ms / 1000.0), case when w.end_ms > 0 then to_timestamp(w.end_ms / 1000.0) end,
    case when w.end_ms > 0 and to_timestamp(w.end_ms / 1000.0) <= l.raised_until then 0 else r.by end,
    case when r.by > 0 and not (w.end_ms > 0 and to_timestamp(w.end_ms / 1000.0) <= l.raised_until) then l.raised_until end
from (
    select unnest(@ids::bigint[]) as id, unnest(@numbers::bigint[]) as number, unnest(@start_ms::bigint[]) as start_ms, unnest(@end_ms::bigint[]) as end_ms
) as w
join limits l on l.number = w.number
cross join lateral (select case when l.raised_until > clock_timestamp() then greatest(l.raised_to - l.amount, 0) else 0 end as by) as r
order by w.id
on conflict (id) do nothing;

-- name: WindowAlarms :many
-- What the alarms of windows are computed from, without those of removed limits.
select p.id, p.account_id, l.project_id, l.key_id, l.id as limit_id, l.name, l.period, p.starts_at::timestamptz as starts_at, p.ends_at,
    (p.total - p.forgiven - r.over)::bigint as amount, (p.settled - p.forgiven)::bigint as spent, p.raised_alarms
from pools p
join limits l on l.number = p.limit_number
cross join lateral (select case when p.raised_until <= clock_timestamp() then p.raised_by else 0 end as over) as r
where p.id = any(@ids::bigint[]) and l.removed_at is null
order by p.id;

-- name: WindowOwners :many
-- The owners of the limits of existing windows.
select p.id, l.account_id, l.project_id, l.key_id
from pools p
join limits l on l.number = p.limit_number
where p.id = any(@ids::bigint[]);
