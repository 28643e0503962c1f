-- The credits of accounts. The lock of the balance pool of the account guards them.

-- name: OpenCredits :many
-- The credits of an account of which something is left, and whether they have expired by now.
select c.*, t.kind, t.reference, t.priority, t.expires_at, t.created_at, coalesce(t.expires_at <= clock_timestamp(), false)::boolean as due
from credits c
join ledger_transactions t on t.id = c.transaction_id
where c.account_id = @account_id and c.used + c.refunded + c.expired < c.amount;

-- name: GetCredit :one
select c.*, t.kind, t.reference, t.priority, t.expires_at, t.created_at, coalesce(t.expires_at <= clock_timestamp(), false)::boolean as due
from credits c
join ledger_transactions t on t.id = c.transaction_id
where c.account_id = @account_id and c.transaction_id = @transaction_id;

-- name: ListCredits :many
-- The states of credits of which something was left when they were stored are given: charges may have used them since.
select c.*, t.kind, t.reference, t.priority, t.expires_at, t.created_at, coalesce(t.expires_at <= clock_timestamp(), false)::boolean as due
from credits c
join ledger_transactions t on t.id = c.transaction_id
where c.account_id = @account_id and (@first_page::boolean or c.transaction_id < @before::uuid)
    and (@kind::text = '' or t.kind = @kind) and (@reference::text = '' or t.reference = @reference)
    and (sqlc.narg('from_moment')::timestamptz is null or t.created_at >= sqlc.narg('from_moment'))
    and (sqlc.narg('to_moment')::timestamptz is null or t.created_at < sqlc.narg('to_moment'))
    and (sqlc.narg('expires_before')::timestamptz is null or t.expires_at < sqlc.narg('expires_before'))
    and (@state::text = '' or c.transaction_id = any(@in_state::uuid[]) or not c.transaction_id = any(@open::uuid[])
        and case when c.expired_at is null then 'used' else 'expired' end = @state)
order by c.account_id, c.transaction_id desc
limit @row_limit;

-- name: CreditPool :one
-- How far the charges of an account are attributed to its credits.
select id, total, settled, attributed, uncovered, expiring from pools where account_id = @account_id and kind = 1 and key_id is null;

-- name: SaveCredits :exec
insert into credits as c (transaction_id, account_id, amount, used, refunded, expired, held, expired_at)
select n.id, @account_id::uuid, n.amount, n.used, n.refunded, n.expired, n.held, case when n.is_expired then now() end
from (
    select unnest(@ids::uuid[]) as id, unnest(@amounts::bigint[]) as amount, unnest(@used::bigint[]) as used, unnest(@refunded::bigint[]) as refunded,
        unnest(@expired::bigint[]) as expired, unnest(@held::bigint[]) as held, unnest(@is_expired::boolean[]) as is_expired
) as n
on conflict (transaction_id) do update
set used = excluded.used, refunded = excluded.refunded, expired = excluded.expired, held = excluded.held,
    expired_at = coalesce(c.expired_at, excluded.expired_at);

-- name: SetAttributed :exec
-- Stores how far charges are attributed, and when the next credit expires.
update pools p
set attributed = @attributed, uncovered = @uncovered, expiring = @expiring, next_expiry = (
    select min(t.expires_at)
    from credits c
    join ledger_transactions t on t.id = c.transaction_id
    where c.account_id = p.account_id and c.used + c.refunded + c.expired < c.amount and c.expired_at is null
)
where p.id = @id;

-- name: AccountsWithExpiry :many
-- The next accounts with a credit that has expired, and is not booked as such.
select account_id, next_expiry::timestamptz as expired_at
from pools
where next_expiry <= clock_timestamp() and (next_expiry, account_id) > (@after_time::timestamptz, @after_account::uuid)
order by next_expiry, account_id
limit @row_limit;

-- name: ExpiryDue :one
-- Whether an account has such a credit, without a lock.
select coalesce(next_expiry <= clock_timestamp(), false)::boolean as due from pools where account_id = @account_id and kind = 1 and key_id is null;

-- name: AccountsToRelease :many
-- The next accounts with a credit of which more is held than leases have outstanding, or which has expired so long ago that nothing
-- of it is held any more. The others are not locked for nothing.
select p.account_id
from pools p
where p.expiring > 0 and p.account_id > @after and exists (
    select from credits c
    where c.account_id = p.account_id and c.used + c.refunded + c.expired < c.amount and c.held > 0
        and (c.held > p.total - p.free - p.settled or c.expired_at <= clock_timestamp() - make_interval(secs => @hold_seconds))
)
order by p.account_id
limit @row_limit;

-- name: CheckCredits :one
-- What is left of an account's credits, less what none has covered, is its balance as of the attributed charges.
with sums as (
    select p.account_id as id, p.total - p.attributed + p.expiring as want, coalesce(c.remaining, 0) - p.uncovered as got
    from pools p
    left join (
        select account_id, sum(amount - used - refunded - expired) as remaining from credits where used + refunded + expired < amount group by account_id
    ) as c on c.account_id = p.account_id
    where p.kind = 1 and p.key_id is null
), first as (
    select * from sums where want <> got order by id limit 1
)
select (select count(*) from sums)::bigint as compared,
    (select count(*) from sums where want <> got)::bigint as differing,
    coalesce((select id from first), '00000000-0000-0000-0000-000000000000')::uuid as first_id,
    coalesce((select want from first), 0)::bigint as want,
    coalesce((select got from first), 0)::bigint as got;

-- name: CheckCreditsAgainstLedger :one
-- The credits of an account, less what was paid back of them and has expired, are what the ledger has of them. A refund of a
-- request and a correction that raises the balance are credits; a correction that lowers it uses some.
with given as (
    select account_id as id, sum(amount - refunded - expired) as amount from credits group by account_id
), booked as (
    select account_id as id, sum(amount) as amount
    from ledger_entries
    where account_id is not null and kind <> 'usage' and (kind <> 'correction' or amount > 0)
    group by account_id
), sums as (
    select coalesce(b.id, g.id) as id, coalesce(b.amount, 0) as want, coalesce(g.amount, 0) as got
    from booked b
    full join given g on g.id = b.id
), first as (
    select * from sums where want <> got order by id limit 1
)
select (select count(*) from sums)::bigint as compared,
    (select count(*) from sums where want <> got)::bigint as differing,
    coalesce((select id from first), '00000000-0000-0000-0000-000000000000')::uuid as first_id,
    coalesce((select want from first), 0)::bigint as want,
    coalesce((select got from first), 0)::bigint as got;
