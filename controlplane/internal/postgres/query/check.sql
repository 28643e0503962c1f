-- name: CheckPools :one
-- Conservation: total = free + settled + outstanding.
with sums as (
    select p.id, p.total as want, p.free + p.settled + coalesce(sum(l.granted - l.returned - l.charged), 0) as got
    from pools p
    left join leases l on l.pool_id = p.id
    group by p.id
), first as (
    select * from sums where want <> got order by id limit 1
)
select (select count(*) from sums)::bigint as compared,
    (select count(*) from sums where want <> got)::bigint as differing,
    coalesce((select id from first), 0)::bigint as first_id,
    coalesce((select want from first), 0)::bigint as want,
    coalesce((select got from first), 0)::bigint as got;

-- name: CheckTransactions :one
-- Double entry: every transaction sums to zero.
with sums as (
    select transaction_id as id, sum(amount) as got from ledger_entries group by transaction_id
), first as (
    select * from sums where got <> 0 order by id limit 1
)
select (select count(*) from sums)::bigint as compared,
    (select count(*) from sums where got <> 0)::bigint as differing,
    coalesce((select id from first), '00000000-0000-0000-0000-000000000000')::uuid as first_id,
    coalesce((select got from first), 0)::bigint as got;

-- name: CheckBalances :one
-- The customer entries of an account sum to total minus settled of its balance pool, and what is held of expired credits.
with sums as (
    select p.account_id as id, coalesce(e.amount, 0) as want, p.total - p.settled + p.expiring as got
    from pools p
    left join (select account_id, sum(amount) as amount from ledger_entries where account_id is not null group by account_id) e
        on e.account_id = p.account_id
    where p.kind = 1 and p.key_id is null
), first as (
    select * from sums where want <> got order by id limit 1
)
select (select count(*) from sums)::bigint as compared,
    (select count(*) from sums where want <> got)::bigint as differing,
    coalesce((select id from first), '00000000-0000-0000-0000-000000000000')::uuid as first_id,
    coalesce((select want from first), 0)::bigint as want,
    coalesce((select got from first), 0)::bigint as got;

-- name: CheckUsageAgainstLedger :one
-- The roll-up of an account and day equals the ledger's charges of that day.
with used as (
    select account_id as id, booked_on as day, sum(cost) as amount from usage_daily group by account_id, booked_on
), charged as (
    select e.account_id as id, (t.created_at at time zone 'utc')::date as day, -sum(e.amount) as amount
    from ledger_entries e
    join ledger_transactions t on t.id = e.transaction_id
    where t.kind = 'usage' and e.account_id is not null
    group by e.account_id, (t.created_at at time zone 'utc')::date
), sums as (
    select coalesce(u.id, c.id) as id, coalesce(u.amount, 0) as want, coalesce(c.amount, 0) as got
    from used u
    full join charged c on c.id = u.id and c.day = u.day
), first as (
    select * from sums where want <> got order by id limit 1
)
select (select count(*) from sums)::bigint as compared,
    (select count(*) from sums where want <> got)::bigint as differing,
    coalesce((select id from first), '00000000-0000-0000-0000-000000000000')::uuid as first_id,
    coalesce((select want from first), 0)::bigint as want,
    coalesce((select got from first), 0)::bigint as got;

-- name: CheckUsageAgainstTotals :one
-- The roll-ups are the sums of the records, as far back as there are records.
with recorded as (
    select account_id, key_id, model, uuid_day(request_id) as day, count(*) as requests, count(*) filter (where estimated) as estimated,
        count(*) filter (where status = 'client_gone') as client_gone, sum(cost) as cost
    from usage_records
    where request_id >= greatest(@floor::uuid, usage_lowest())
    group by account_id, key_id, model, uuid_day(request_id)
), totalled as (
    select account_id, key_id, model, used_on as day, sum(requests) as requests, sum(estimated) as estimated, sum(client_gone) as client_gone, sum(cost) as cost
    from usage_daily
    where used_on >= greatest(uuid_day(usage_lowest()), uuid_day(@floor))
    group by account_id, key_id, model, used_on
), sums as (
    select coalesce(r.account_id, t.account_id) as id, coalesce(r.cost, 0) as want, coalesce(t.cost, 0) as got,
        coalesce((r.cost, r.requests, r.estimated, r.client_gone) = (t.cost, t.requests, t.estimated, t.client_gone), false) as same
    from recorded r
    full join totalled t on (t.account_id, t.key_id, t.model, t.day) = (r.account_id, r.key_id, r.model, r.day)
), first as (
    select * from sums where not same order by id limit 1
)
select (select count(*) from sums)::bigint as compared,
    (select count(*) from sums where not same)::bigint as differing,
    coalesce((select id from first), '00000000-0000-0000-0000-000000000000')::uuid as first_id,
    coalesce((select want from first), 0)::bigint as want,
    coalesce((select got from first), 0)::bigint as got;

-- name: CheckUsageAgainstPools :one
-- The roll-ups equal the settled amounts of the pools of the account and of the key.
with used as (
    select account_id as owner, sum(cost) as amount from usage_daily group by account_id
    union all
    select key_id, sum(cost) from usage_daily group by key_id
), sums as (
    select p.id, coalesce(u.amount, 0) as want, p.settled as got
    from pools p
    left join used u on u.owner = coalesce(p.key_id, p.account_id)
    where p.kind in (1, 2) and p.limit_number is null
), first as (
    select * from sums where want <> got order by id limit 1
)
select (select count(*) from sums)::bigint as compared,
    (select count(*) from sums where want <> got)::bigint as differing,
    coalesce((select id from first), 0)::bigint as first_id,
    coalesce((select want from first), 0)::bigint as want,
    coalesce((select got from first), 0)::bigint as got;

-- name: CountSecretsByMasterKey :many
-- The number of secrets under each master key, directly or by a data key. A missing data key is counted under its own id.
select coalesce(d.master_key_id, s.key_id)::text as key_id, count(*) as secrets
from (
    select cipher_key_id as key_id from api_keys where cipher_key_id is not null
    union all select cipher_key_id from provider_credentials
    union all select cipher_key_id from webhook_secrets
    union all select cipher_key_id from idempotency_keys where cipher_key_id is not null
) as s
left join data_keys d on d.id = s.key_id
group by 1;

-- name: CheckModelTotals :one
-- The roll-up over all accounts is the sum of the roll-up by account.
with single as (
    select model, used_on as day, sum(requests) as requests, sum(cost) as cost from usage_daily group by model, used_on
), together as (
    select model, used_on as day, sum(requests) as requests, sum(cost) as cost from usage_daily_models group by model, used_on
), sums as (
    select coalesce(s.model, t.model) as model, coalesce(s.cost, 0) as want, coalesce(t.cost, 0) as got,
        coalesce((s.cost, s.requests) = (t.cost, t.requests), false) as same
    from single s
    full join together t on (t.model, t.day) = (s.model, s.day)
), first as (
    select * from sums where not same order by model limit 1
)
select (select count(*) from sums)::bigint as compared,
    (select count(*) from sums where not same)::bigint as differing,
    coalesce((select model from first), '')::text as first_model,
    coalesce((select want from first), 0)::bigint as want,
    coalesce((select got from first), 0)::bigint as got;

-- name: CheckWeeklyTotals :one
-- The roll-up by week is the sum of the roll-up by day.
with single as (
    select account_id, key_id, project_id, model, service_tier, used_on - (extract(isodow from used_on)::integer - 1) as week,
        sum(requests) as requests, sum(cost) as cost
    from usage_daily
    group by 1, 2, 3, 4, 5, 6
), sums as (
    select coalesce(s.account_id, w.account_id) as account_id, coalesce(s.cost, 0) as want, coalesce(w.cost, 0) as got,
        coalesce((s.cost, s.requests) = (w.cost, w.requests), false) as same
    from single s
    full join usage_weekly w on (w.account_id, w.key_id, w.project_id, w.model, w.service_tier, w.week)
        = (s.account_id, s.key_id, s.project_id, s.model, s.service_tier, s.week)
), first as (
    select * from sums where not same order by account_id limit 1
)
select (select count(*) from sums)::bigint as compared,
    (select count(*) from sums where not same)::bigint as differing,
    coalesce((select account_id from first), '00000000-0000-0000-0000-000000000000')::uuid as first_id,
    coalesce((select want from first), 0)::bigint as want,
    coalesce((select got from first), 0)::bigint as got;
