-- Limits of accounts, projects and keys. Their windows are pools (see leasing.sql).

-- name: InsertLimit :exec
-- A repeated call changes nothing.
insert into limits (number, id, account_id, project_id, key_id, name, amount, period, time_zone, length_seconds, anchor_unix, models, revision)
values (@number, @id, @account_id, sqlc.narg('project_id'), sqlc.narg('key_id'), @name, @amount, @period, @time_zone, @length_seconds, @anchor_unix, @models, @revision)
on conflict (id) do nothing;

-- name: CountLimits :one
-- How many limits of an account may apply to one request at most, beside the spend limits of keys: those of the account, with those of
-- the key and its project that have the most, or of a project that may still get a key. The slots of a key count as one. A revoked key
-- needs none.
with owned as (
    select x.project_id, x.key_id, count(*) as n from (
        select l.project_id, l.key_id from limits l where l.account_id = @account_id and l.removed_at is null
        union all
        select null::uuid, k.id from api_keys k where k.account_id = @account_id and k.max_concurrent_requests is not null and k.revoked_at is null
    ) as x
    group by x.project_id, x.key_id
)
select (coalesce((select o.n from owned o where o.project_id is null and o.key_id is null), 0) + greatest(
    coalesce((select max(o.n) from owned o where o.project_id is not null), 0),
    coalesce((
        select max(o.n + coalesce(p.n, 0)) from owned o
        join api_keys k on k.id = o.key_id and k.revoked_at is null
        left join owned p on p.project_id = k.project_id
    ), 0)))::bigint as most;

-- name: GetLimit :one
select * from limits where id = @id;

-- name: LockLimit :one
select * from limits where id = @id for update;

-- name: ListLimits :many
select * from limits
where account_id = @account_id and removed_at is null and id > @after
    and (sqlc.narg('key_id')::uuid is null or key_id = sqlc.narg('key_id'))
    and (sqlc.narg('project_id')::uuid is null or project_id = sqlc.narg('project_id'))
    and (@scope::text = '' or case when key_id is not null then 'key' when project_id is not null then 'project' else 'account' end = @scope)
order by id
limit @row_limit;

-- name: UpdateLimit :one
update limits set name = @name, amount = @amount, raised_to = sqlc.narg('raised_to'), raised_until = sqlc.narg('raised_until'), models = @models, revision = @revision, updated_at = now() where id = @id
returning *;

-- name: RemoveLimit :one
update limits set removed_at = now(), revision = @revision, updated_at = now() where id = @id
returning *;

-- name: RemoveProjectLimits :exec
update limits set removed_at = now(), revision = @revision, updated_at = now() where project_id = @project_id and removed_at is null;

-- name: LockOpenWindows :many
-- The windows in which requests may still count, with their amount now and the part of it that is taken away later. The limit is
-- locked, so that no others are made meanwhile.
select p.id, p.forgiven, (l.amount + r.by)::bigint as amount,
    (case when p.ends_at <= l.raised_until then 0 else r.by end)::bigint as raised_by,
    (case when r.by = 0 or p.ends_at <= l.raised_until then 0 else extract(epoch from l.raised_until) * 1000 end)::bigint as raised_until_ms
from pools p
join limits l on l.number = p.limit_number
cross join lateral (select case when l.raised_until > clock_timestamp() then greatest(l.raised_to - l.amount, 0) else 0 end as by) as r
where p.limit_number = @number and (p.ends_at is null or p.ends_at > clock_timestamp() - make_interval(secs => @tolerance_seconds::float8))
order by p.id
for no key update of p;

-- name: ForgiveWindow :exec
update pools set forgiven = @forgiven where id = @id;

-- name: LimitWasReset :one
-- Whether a reset was made before, by its id.
select exists (select from audit_log where object = @object and action = 'limit.reset' and before ->> 'reset_id' = @reset_id::text);

-- name: CurrentWindows :many
-- The windows of limits that contain this moment.
select p.id, p.account_id, p.starts_at::timestamptz as starts_at, p.ends_at, (p.total - p.forgiven - r.over)::bigint as amount, (p.settled - p.forgiven)::bigint as spent,
    (p.total - p.free - p.settled)::bigint as held, (p.free - r.over)::bigint as free
from pools p
cross join lateral (select case when p.raised_until <= clock_timestamp() then p.raised_by else 0 end as over) as r
where p.limit_number = any(@numbers::bigint[]) and p.starts_at <= clock_timestamp() and (p.ends_at is null or p.ends_at > clock_timestamp());

-- name: ExplainedWindows :many
-- The windows of limits in which a request would count now. The id of one that no request has needed yet is zero.
select l.number, coalesce(p.id, 0)::bigint as id,
    (l.amount + case when l.raised_until > clock_timestamp() then greatest(l.raised_to - l.amount, 0) else 0 end)::bigint as amount,
    coalesce((extract(epoch from p.ends_at) * 1000)::bigint, 0)::bigint as end_ms
from limits l
left join lateral (
    select w.id, w.ends_at from pools w
    where w.limit_number = l.number and w.starts_at <= clock_timestamp() and (w.ends_at is null or w.ends_at > clock_timestamp())
    order by w.id desc
    limit 1
) as p on true
where l.number = any(@numbers::bigint[])
order by l.number;

-- name: ListWindows :many
-- The windows of a limit, newest first.
select p.id, p.account_id, p.starts_at::timestamptz as starts_at, p.ends_at, (p.total - p.forgiven - r.over)::bigint as amount, (p.settled - p.forgiven)::bigint as spent,
    (p.total - p.free - p.settled)::bigint as held, (p.free - r.over)::bigint as free
from pools p
cross join lateral (select case when p.raised_until <= clock_timestamp() then p.raised_by else 0 end as over) as r
where p.limit_number = @number and p.id < @before
order by p.id desc
limit @row_limit;

-- name: ProjectOfKey :one
select project_id from api_keys where id = @id and account_id = @account_id;

-- name: LimitsOfKey :many
-- The limits of a key, its project and its account.
select number, id, project_id, key_id, models from limits
where account_id = @account_id and removed_at is null
    and (key_id = @key_id::uuid or project_id = @project_id::uuid or (key_id is null and project_id is null))
order by number;

-- name: UselessLimits :many
-- Limits and keys that let no request through or that apply to none, of active accounts and keys that work: amounts of nothing ("amount"),
-- models of which the account may use none ("models"), raises to less than the amount ("raise"), and amounts below the cost of the smallest
-- request with any of the models ("low"): an image, a second of video, or a token of input and output. So are balances that were never used.
with priced as (
    select m.id, m.public, least(
        (select min((u ->> 'price')::bigint) from jsonb_array_elements(coalesce(p.sheet -> 'images', '[]') || coalesce(p.sheet -> 'seconds', '[]')) as u),
        case when p.sheet ? 'rates' then (coalesce((p.sheet -> 'rates' ->> 'input')::numeric, 0) + coalesce((p.sheet -> 'rates' ->> 'output')::numeric, 0)) / 1000000 end) as cost
    from models m
    cross join lateral (select v.sheet from model_prices v where v.model_id = m.id order by v.version desc limit 1) as p
    where m.enabled and m.deleted_at is null
), working as (
    select k.* from api_keys k join accounts a on a.id = k.account_id
    where a.status = 'active' and k.revoked_at is null and not k.paused and (k.expires_at is null or k.expires_at > now())
), in_force as (
    select l.*, coalesce(l.raised_until > now(), false) as raised from limits l join accounts a on a.id = l.account_id
    where a.status = 'active' and l.removed_at is null and (l.key_id is null or l.key_id in (select w.id from working w))
), listed as (
    select 'limit' as kind, l.id, l.account_id, l.models from in_force l
    union all
    select 'key', k.id, k.account_id, k.models from working k
), wrong as (
    select o.kind, o.id, 'models' as problem from listed o
    where jsonb_array_length(o.models) > 0 and not exists (
        select from models m cross join jsonb_array_elements_text(o.models) as t (name)
        where m.enabled and m.deleted_at is null and (m.id = t.name or t.name like '%*' and starts_with(m.id, left(t.name, -1)))
            and (m.public or exists (select from model_grants g where g.account_id = o.account_id and g.model_id = m.id)))
    union all
    select 'limit', l.id, case when l.raised and l.raised_to > 0 then 'raise' else 'amount' end from in_force l
    where case when l.raised then l.raised_to = 0 or l.raised_to < l.amount else l.amount = 0 end
    union all
    select 'key', k.id, 'amount' from working k where k.spend_limit = 0
    union all
    select o.kind, o.id, 'low'
    from (
        select 'limit' as kind, l.id, l.account_id, l.models, case when l.raised then l.raised_to else l.amount end as amount from in_force l
        union all
        select 'key', k.id, k.account_id, k.models, k.spend_limit from working k
        union all
        select 'account', b.account_id, b.account_id, '[]', b.total from pools b
        where b.kind = 1 and b.key_id is null and b.settled = 0 and exists (select from working k where k.account_id = b.account_id)
    ) as o
    join accounts a on a.id = o.account_id
    where o.amount > 0 and o.amount < 100 * (select max(p.cost) from priced p) -- the others are not compared with each model
        and o.amount < (
            select min(p.cost * coalesce((nullif(a.model_multipliers ->> p.id, '0'))::numeric, nullif(a.price_multiplier, 0), 1000000) / 1000000)
            from priced p
            where (p.public or exists (select from model_grants g where g.account_id = o.account_id and g.model_id = p.id))
                and (jsonb_array_length(o.models) = 0 or exists (select from jsonb_array_elements_text(o.models) as t (name)
                    where p.id = t.name or t.name like '%*' and starts_with(p.id, left(t.name, -1)))))
)
select kind::text, id, problem::text from wrong order by kind, id, problem limit @max_rows;
