-- name: InsertAccount :one
-- Returns no row if the id or the external id exists already.
insert into accounts (id, external_id, name, status, max_concurrent_requests, max_open_video_jobs, price_multiplier, model_multipliers, revision)
values (@id, nullif(@external_id::text, ''), @name, @status, @max_concurrent_requests, @max_open_video_jobs, @price_multiplier, @model_multipliers, @revision)
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
order by id
limit @row_limit;

-- name: UpdateAccount :one
update accounts
set name = @name, status = @status, max_concurrent_requests = @max_concurrent_requests,
    max_open_video_jobs = @max_open_video_jobs, price_multiplier = @price_multiplier,
    model_multipliers = @model_multipliers, revision = @revision, updated_at = now()
where id = @id
returning *;

-- name: AccountBalances :many
select p.id as pool_id, p.account_id, (p.total - p.settled)::bigint as balance, p.free as available,
    (select coalesce(sum(l.granted - l.returned - l.charged), 0) from leases l where l.pool_id = p.id)::bigint as reserved
from pools p
where p.kind = 1 and p.key_id is null and p.account_id = any(@account_ids::uuid[]);

-- name: SummarizeBalances :one
-- Counts each account once, in the first state that applies, and adds up how far balances are below zero. The bits of
-- raised_alarms are 1 for a low balance and 2 for one that a request was refused for, or that is spent.
select count(*) filter (where total < settled) as negative,
    count(*) filter (where total >= settled and (total = settled or raised_alarms & 2 <> 0)) as exhausted,
    count(*) filter (where total > settled and raised_alarms & 3 = 1) as low,
    count(*) filter (where total > settled and raised_alarms & 3 = 0) as sufficient,
    coalesce(sum(settled - total) filter (where total < settled), 0)::bigint as overdrawn
from pools
where kind = 1;
