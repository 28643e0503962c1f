-- The ledger check over rows that are newer than the stored sums. No running
-- transaction began before the time up to which rows are summed, so no row with
-- an earlier time can be added.

-- name: CheckLeases :one
-- The outstanding amount of a lease is not negative, and that of a lease of a closed session is zero.
with odd as (
    select l.pool_id, l.session_id, l.granted - l.returned - l.charged as got
    from leases l
    join proxy_sessions s on s.id = l.session_id
    where l.granted - l.returned - l.charged < 0 or (s.state = 3 and l.granted - l.returned - l.charged <> 0)
), first as (
    select pool_id, session_id, got from odd order by pool_id, session_id limit 1
)
select (select count(*) from leases)::bigint as compared,
    (select count(*) from odd)::bigint as differing,
    coalesce((select pool_id from first), 0)::bigint as pool_id,
    coalesce((select session_id from first), 0)::bigint as session_id,
    coalesce((select got from first), 0)::bigint as got;

-- name: LedgerCheckState :one
select summed_until, extract(epoch from clock_timestamp() - summed_until)::float8 as age_seconds from ledger_check_state;

-- name: CheckChangedTransactions :one
with sums as (
    select t.id, coalesce((select sum(e.amount) from ledger_entries e where e.transaction_id = t.id), 0) as got
    from ledger_transactions t
    where t.created_at >= @since
), first as (
    select id, got from sums where got <> 0 order by id limit 1
)
select (select count(*) from sums)::bigint as compared,
    (select count(*) from sums where got <> 0)::bigint as differing,
    coalesce((select id from first), '00000000-0000-0000-0000-000000000000')::uuid as first_id,
    coalesce((select got from first), 0)::bigint as got;

-- name: CountChargedPools :one
select count(*) from pools where kind in (1, 2) and limit_number is null;

-- name: DifferingPools :many
-- The pools of accounts and keys that differ from the records or the ledger, that is from the stored sums plus the newer
-- rows. Pools and sums are combined by UNION and not by a join: the planner cannot estimate the number of sums, and a plan
-- for few of them takes minutes if there are many.
with parts as (
    select owner_id as owner, used::numeric as used, charged::numeric as charged, entries::numeric as entries,
        null::bigint as pool, null::smallint as kind, null::bigint as settled, null::bigint as balance
    from ledger_check_sums
    union all
    select case when grouping(r.account_id) = 0 then r.account_id else r.key_id end, sum(r.cost), 0, 0, null, null, null, null
    from usage_records r
    where r.settled_at >= @since
    group by grouping sets ((r.account_id), (r.key_id))
    union all
    select e.account_id, 0, coalesce(-sum(e.amount) filter (where t.kind = 'usage'), 0), sum(e.amount), null, null, null, null
    from ledger_transactions t
    cross join lateral (select n.account_id, n.amount from ledger_entries n where n.transaction_id = t.id offset 0) as e
    where t.created_at >= @since and e.account_id is not null
    group by e.account_id
    union all
    select coalesce(p.key_id, p.account_id), 0, 0, 0, p.id, p.kind, p.settled, p.total - p.settled + p.expiring
    from pools p
    where p.kind in (1, 2) and p.limit_number is null
)
select max(pool)::bigint as id, max(kind)::smallint as kind, owner, max(settled)::bigint as settled, max(balance)::bigint as balance,
    sum(used)::bigint as used, sum(charged)::bigint as charged, sum(entries)::bigint as entries
from parts
group by owner
having max(pool) is not null
    and (sum(used) <> max(settled) or (max(kind) = 1 and (sum(charged) <> sum(used) or sum(entries) <> max(balance))))
order by id
limit @max_rows;

-- name: TryLockLedgerCheck :one
select pg_try_advisory_xact_lock(7310013);

-- name: AddLedgerCheckSums :exec
-- Adds the rows from since to upto to the stored sums.
insert into ledger_check_sums as b (owner_id, used, charged, entries)
select owner, sum(used), sum(charged), sum(entries)
from (
    select case when grouping(r.account_id) = 0 then r.account_id else r.key_id end as owner, sum(r.cost) as used, 0 as charged, 0 as entries
    from usage_records r
    where r.settled_at >= @since and r.settled_at < @upto
    group by grouping sets ((r.account_id), (r.key_id))
    union all
    select e.account_id, 0, coalesce(-sum(e.amount) filter (where t.kind = 'usage'), 0), sum(e.amount)
    from ledger_transactions t
    cross join lateral (select n.account_id, n.amount from ledger_entries n where n.transaction_id = t.id offset 0) as e
    where t.created_at >= @since and t.created_at < @upto and e.account_id is not null
    group by e.account_id
    union all
    -- The first time, also the months whose records were dropped.
    select case when grouping(d.account_id) = 0 then d.account_id else d.key_id end, sum(d.cost), 0, 0
    from usage_daily d
    where @dropped::boolean and (d.used_on < usage_kept_from()
        or exists (select from usage_months m where m.month = date_trunc('month', d.used_on::timestamp)::date and m.dropped_at is not null))
    group by grouping sets ((d.account_id), (d.key_id))
) as parts
where owner is not null
group by owner
on conflict (owner_id) do update
set used = b.used + excluded.used, charged = b.charged + excluded.charged, entries = b.entries + excluded.entries;

-- name: SetLedgerCheckState :exec
insert into ledger_check_state (summed_until) values (@summed_until) on conflict (one) do update set summed_until = excluded.summed_until;

-- name: LedgerCheckMoment :one
-- The time up to which rows can be summed: no transaction runs for two minutes.
select (clock_timestamp() - interval '2 minutes')::timestamptz as upto;

-- name: DeleteLedgerCheckSums :exec
with forgotten as (delete from ledger_check_state)
delete from ledger_check_sums;
