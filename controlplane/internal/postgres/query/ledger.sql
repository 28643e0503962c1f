-- name: InsertTransaction :one
-- Returns no row if the kind and reference are booked already.
insert into ledger_transactions (id, kind, reference, reason, actor, request_id, credit_id, priority, expires_at, effective_at)
values (@id, @kind, @reference, @reason, @actor, sqlc.narg('request_id'), sqlc.narg('credit_id'), @priority, sqlc.narg('expires_at'), sqlc.narg('effective_at'))
on conflict do nothing
returning *;

-- name: InsertCreditEntries :exec
insert into ledger_entries (transaction_id, kind, line, ledger_account, account_id, amount)
values (@transaction_id, @kind::text, 1, 'customer', @account_id::uuid, @amount::bigint),
    (@transaction_id, @kind::text, 2, @against::text, null, @negated::bigint);

-- name: GetCustomerTransaction :one
select t.*, e.account_id::uuid as account_id, e.amount
from ledger_transactions t
join ledger_entries e on e.transaction_id = t.id and e.ledger_account = 'customer'
where t.kind = @kind and t.reference = @reference;

-- name: ListAccountTransactions :many
-- It is planned for its values, so that the index of an account's movements finds its payments among many charges. Ids and times
-- have the same order but for the time that a transaction takes, so lowest_id and before bound what is read.
select t.*, e.account_id::uuid as account_id, e.amount
from ledger_entries e
join ledger_transactions t on t.id = e.transaction_id
where e.account_id = @account_id::uuid and (@kind::text = '' or e.kind = @kind) and (@first_page::boolean or e.transaction_id < @before)
    and e.transaction_id >= @lowest_id::uuid
    and (sqlc.narg('from_moment')::timestamptz is null or t.created_at >= sqlc.narg('from_moment'))
    and (sqlc.narg('to_moment')::timestamptz is null or t.created_at < sqlc.narg('to_moment'))
order by e.account_id, e.transaction_id desc
limit @row_limit;

-- name: CorrectionsOfRequest :many
-- The corrections and refunds that refer to a request, oldest first.
select t.*, e.account_id::uuid as account_id, e.amount
from ledger_transactions t
join ledger_entries e on e.transaction_id = t.id and e.ledger_account = 'customer'
where t.request_id = @request_id::uuid and t.kind in ('correction', 'refund')
order by t.created_at, t.id;

-- name: TransactionCreatedAt :one
select created_at from ledger_transactions where id = @id;

-- name: ExportLedger :many
-- Every entry of every ledger account, in the order of booking.
select t.id, t.kind, t.reference, t.reason, t.actor, t.created_at, t.request_id, t.credit_id, t.priority, t.expires_at, t.effective_at, e.line, e.ledger_account, e.account_id, e.amount
from ledger_transactions t
join ledger_entries e on e.transaction_id = t.id
where t.created_at >= @from_moment and t.created_at < @to_moment and (@kind::text = '' or t.kind = @kind)
    and (t.created_at, t.id) >= (@after_moment::timestamptz, @after_id::uuid)
    and (t.created_at, t.id, e.line) > (@after_moment::timestamptz, @after_id::uuid, @after_line::integer)
order by t.created_at, t.id, e.line
limit @row_limit;

-- name: ExportAccountLedger :many
-- The entries of one account, in the order of their transactions' ids.
select t.id, t.kind, t.reference, t.reason, t.actor, t.created_at, t.request_id, t.credit_id, t.priority, t.expires_at, t.effective_at, e.line, e.ledger_account, e.account_id, e.amount
from ledger_entries e
join ledger_transactions t on t.id = e.transaction_id
where e.account_id = @account_id::uuid and t.created_at >= @from_moment and t.created_at < @to_moment and (@kind::text = '' or e.kind = @kind)
    and e.transaction_id >= @after_id::uuid
    and (e.transaction_id, e.line) > (@after_id::uuid, @after_line::integer)
order by e.account_id, e.transaction_id, e.line
limit @row_limit;

-- name: RefundedOfRequest :one
-- What refunds have given back of the charge of a request.
select coalesce(sum(e.amount), 0)::bigint
from ledger_transactions t
join ledger_entries e on e.transaction_id = t.id and e.ledger_account = 'customer'
where t.request_id = @request_id::uuid and t.kind = 'refund';
