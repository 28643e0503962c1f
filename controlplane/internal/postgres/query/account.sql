-- name: InsertAccount :one
-- Returns no row if the id or the external id exists already.
insert into accounts (id, external_id, name, status, max_concurrent_requests, max_open_video_jobs, price_multiplier, model_multipliers, include_cost, metadata, revision)
values (@id, nullif(@external_id::text, ''), @name, @status, @max_concurrent_requests, @max_open_video_jobs, @price_multiplier, @model_multipliers, @include_cost, @metadata, @revision)
on conflict do nothing
returning *;

-- name: InsertAccountPools :exec
insert into pools (account_id, kind, total, free)
values (@account_id, 1, 0, 0), (@account_id, 3, @slots::bigint, @slots::bigint);

-- name: GetAccount :one
select * from accounts where id = @id;

-- name: LockAccount :one
select * from accounts where id = @id for update;

-- name: ListAccounts :many
select * from accounts
where id > @after and (@external_id::text = '' or external_id = @external_id)
    and (@status::text = '' or status = @status)
    and (@part::text = '' or name ilike @part or external_id ilike @part)
order by id
limit @row_limit;

-- name: RankAccounts :many
-- The accounts in the order of a figure: the lowest balance, the highest cost of seven days, or the fewest hours left.
with figures as (
    select a.id, (p.total - p.settled)::bigint as balance,
        coalesce(u.seven_days, 0)::bigint as seven_days, hours_left(p.total - p.settled, coalesce(u.two_days, 0), coalesce(u.seven_days, 0), now()) as hours
    from accounts a
    join pools p on p.account_id = a.id and p.kind = 1 and p.key_id is null
    left join (
        select d.account_id, sum(d.cost)::bigint as seven_days,
            coalesce(sum(d.cost) filter (where d.used_on >= (now() at time zone 'utc')::date - 1), 0)::bigint as two_days
        from usage_daily d
        where d.used_on > (now() at time zone 'utc')::date - 7
        group by d.account_id
    ) as u on u.account_id = a.id
    where (@external_id::text = '' or a.external_id = @external_id)
        and (@status::text = '' or a.status = @status)
        and (@part::text = '' or a.name ilike @part or a.external_id ilike @part)
), ranked as (
    select f.id, case @sort::text when 'balance' then f.balance when 'cost_7d' then -f.seven_days else coalesce(f.hours, 9e18::bigint) end as rank
    from figures f
)
select r.id, r.rank::bigint as rank from ranked r
where @first_page::boolean or (r.rank, r.id) > (@after_rank::bigint, @after::uuid)
order by r.rank, r.id
limit @row_limit;

-- name: GetAccounts :many
select * from accounts where id = any(@ids::uuid[]);

-- name: AccountFigures :many
-- The charges of accounts by the day on which the requests began. A charge is booked on that day or later. The hours are
-- -1 if nothing was charged.
select p.account_id, coalesce(u.today, 0)::bigint as today, coalesce(u.seven_days, 0)::bigint as seven_days,
    coalesce(hours_left(p.total - p.settled, coalesce(u.two_days, 0), coalesce(u.seven_days, 0), now()), -1)::bigint as hours
from pools p
left join (
    select d.account_id, sum(d.cost)::bigint as seven_days,
        coalesce(sum(d.cost) filter (where d.used_on >= (now() at time zone 'utc')::date - 1), 0)::bigint as two_days,
        coalesce(sum(d.cost) filter (where d.used_on >= (now() at time zone 'utc')::date), 0)::bigint as today
    from usage_daily d
    where d.account_id = any(@account_ids::uuid[]) and d.used_on > (now() at time zone 'utc')::date - 7
        and d.booked_on >= (now() at time zone 'utc')::date - 7
    group by d.account_id
) as u on u.account_id = p.account_id
where p.kind = 1 and p.key_id is null and p.account_id = any(@account_ids::uuid[]);

-- name: UpdateAccount :one
update accounts
set name = @name, status = @status, max_concurrent_requests = @max_concurrent_requests,
    max_open_video_jobs = @max_open_video_jobs, price_multiplier = @price_multiplier,
    model_multipliers = @model_multipliers, include_cost = @include_cost, metadata = @metadata, revision = @revision, updated_at = now()
where id = @id
returning *;

-- name: AccountBalances :many
select p.id as pool_id, p.account_id, (p.total - p.settled)::bigint as balance, p.free as available,
    (select coalesce(sum(l.granted - l.returned - l.charged), 0) from leases l where l.pool_id = p.id)::bigint as reserved
from pools p
where p.kind = 1 and p.key_id is null and p.account_id = any(@account_ids::uuid[]);

-- name: SummarizeBalances :one
-- Counts each account once, in the first state that applies, and adds up how far balances are below zero, and the
-- charges beyond what had been granted and after the end of their session. The bits of
-- raised_alarms are 1 for a low balance and 2 for one that a request was refused for, or that is spent.
select count(*) filter (where total < settled) as negative,
    count(*) filter (where total >= settled and (total = settled or raised_alarms & 2 <> 0)) as exhausted,
    count(*) filter (where total > settled and raised_alarms & 3 = 1) as low,
    count(*) filter (where total > settled and raised_alarms & 3 = 0) as sufficient,
    coalesce(sum(settled - total) filter (where total < settled), 0)::bigint as overdrawn,
    coalesce(sum(overrun), 0)::bigint as overrun, coalesce(sum(late), 0)::bigint as late
from pools
where kind = 1 and key_id is null;
