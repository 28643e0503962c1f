-- name: InsertLedgerCheck :execrows
-- Inserts nothing if a run of the kind is open.
insert into ledger_checks (id, kind, state, actor) values (@id, @kind, 'waiting', @actor) on conflict do nothing;

-- name: OpenLedgerCheck :one
select * from ledger_checks where kind = @kind and state in ('waiting', 'running');

-- name: GetLedgerCheck :one
select * from ledger_checks where id = @id;

-- name: ListLedgerChecks :many
select * from ledger_checks
where (@kind::text = '' or kind = @kind) and (@before::uuid = '00000000-0000-0000-0000-000000000000' or id < @before)
order by id desc
limit @row_limit;

-- name: ClaimLedgerCheck :one
update ledger_checks
set state = 'running', claimed_until = clock_timestamp() + make_interval(secs => @seconds), claim_number = claim_number + 1,
    started_at = coalesce(started_at, clock_timestamp()), done = 0
where id = (
    select c.id from ledger_checks c
    where c.state = 'waiting' or c.state = 'running' and c.claimed_until < clock_timestamp()
    order by c.id
    limit 1
    for update skip locked
)
returning *;

-- name: AdvanceLedgerCheck :execrows
update ledger_checks
set done = @done, total = @total, claimed_until = clock_timestamp() + make_interval(secs => @seconds)
where id = @id and claim_number = @claim_number and state = 'running';

-- name: EndLedgerCheck :execrows
update ledger_checks
set state = @state, done = @done, total = @total, ok = @ok, checks = @checks, took_ms = @took_ms, ended_at = clock_timestamp(), claimed_until = null
where id = @id and claim_number = @claim_number and state = 'running';

-- name: InsertLedgerCheckResult :exec
insert into ledger_checks (id, kind, state, actor, done, total, ok, checks, took_ms, started_at, ended_at)
values (@id, @kind, 'done', @actor, @total, @total, @ok, @checks, @took_ms, clock_timestamp() - make_interval(secs => @took_seconds), clock_timestamp());

-- name: DeleteOldLedgerChecks :exec
-- Keeps the newest of a kind.
delete from ledger_checks as d
where d.kind = @kind and d.id <= (select c.id from ledger_checks c where c.kind = @kind order by c.id desc offset @kept limit 1);

-- name: CountUsage :one
-- The number of records that are kept, by the roll-up.
select coalesce(sum(requests), 0)::bigint from usage_daily_models where used_on >= usage_kept_from();

-- name: SumBooks :many
-- The entries of each ledger account in a period.
select e.ledger_account, e.kind, sum(e.amount)::bigint as amount
from ledger_entries e
join ledger_transactions t on t.id = e.transaction_id
where (sqlc.narg('from_time')::timestamptz is null or t.created_at >= sqlc.narg('from_time'))
    and (sqlc.narg('to_time')::timestamptz is null or t.created_at < sqlc.narg('to_time'))
group by e.ledger_account, e.kind;

-- name: SumAllBooks :many
select e.ledger_account, e.kind, sum(e.amount)::bigint as amount from ledger_entries e group by e.ledger_account, e.kind;
