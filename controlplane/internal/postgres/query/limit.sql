-- Limits of accounts and keys. Their windows are pools (see leasing.sql).

-- name: InsertLimit :exec
-- A repeated call changes nothing.
insert into limits (number, id, account_id, key_id, name, amount, period, time_zone, length_seconds, anchor_unix, models, revision)
values (@number, @id, @account_id, sqlc.narg('key_id'), @name, @amount, @period, @time_zone, @length_seconds, @anchor_unix, @models, @revision)
on conflict (id) do nothing;

-- name: CountLimits :one
-- The limits of an account, and of the key with the most, or of one key. A revoked key needs none.
select (select count(*) from limits l where l.account_id = @account_id and l.key_id is null and l.removed_at is null)::bigint as of_account,
    coalesce((
        select max(c.n) from (
            select count(*) as n from limits l
            join api_keys k on k.id = l.key_id and k.revoked_at is null
            where l.account_id = @account_id and l.removed_at is null
                and l.key_id = coalesce(sqlc.narg('key_id')::uuid, l.key_id)
            group by l.key_id
        ) as c), 0)::bigint as of_key;

-- name: GetLimit :one
select * from limits where id = @id;

-- name: LockLimit :one
select * from limits where id = @id for update;

-- name: ListLimits :many
select * from limits
where account_id = @account_id and removed_at is null and id > @after
    and (sqlc.narg('key_id')::uuid is null or key_id = sqlc.narg('key_id'))
order by id
limit @row_limit;

-- name: UpdateLimit :one
update limits set name = @name, amount = @amount, models = @models, revision = @revision, updated_at = now() where id = @id
returning *;

-- name: RemoveLimit :one
update limits set removed_at = now(), revision = @revision, updated_at = now() where id = @id
returning *;

-- name: LockOpenWindows :many
-- The windows in which requests may still count. The limit is locked, so that no others are made meanwhile.
select id, forgiven from pools
where limit_number = @number and (ends_at is null or ends_at > clock_timestamp() - make_interval(secs => @tolerance_seconds::float8))
order by id
for no key update;

-- name: ForgiveWindow :exec
update pools set forgiven = @forgiven where id = @id;

-- name: CurrentWindows :many
-- The windows of limits that contain this moment.
select p.id, p.account_id, p.starts_at::timestamptz as starts_at, p.ends_at, (p.total - p.forgiven)::bigint as amount, (p.settled - p.forgiven)::bigint as spent,
    (p.total - p.free - p.settled)::bigint as held, p.free
from pools p
where p.limit_number = any(@numbers::bigint[]) and p.starts_at <= clock_timestamp() and (p.ends_at is null or p.ends_at > clock_timestamp());

-- name: ListWindows :many
-- The windows of a limit, newest first.
select p.id, p.account_id, p.starts_at::timestamptz as starts_at, p.ends_at, (p.total - p.forgiven)::bigint as amount, (p.settled - p.forgiven)::bigint as spent,
    (p.total - p.free - p.settled)::bigint as held, p.free
from pools p
where p.limit_number = @number and p.id < @before
order by p.id desc
limit @row_limit;
