-- name: InsertKey :one
-- Returns no row if the id, the hash or the external id exists already.
insert into api_keys (id, account_id, external_id, name, lookup_hash, pepper_id, ciphertext, cipher_key_id, hint, spend_limit, revision)
select @id, @account_id, nullif(@external_id::text, ''), @name, @lookup_hash::bytea, nullif(@pepper_id::text, ''), sqlc.narg('ciphertext')::bytea,
    sqlc.narg('cipher_key_id')::text, @hint, sqlc.narg('spend_limit')::bigint, @revision::bigint
where not exists (select from key_hashes h where h.hash = @lookup_hash::bytea)
on conflict do nothing
returning *;

-- name: InsertLimitPool :exec
-- A key without a limit has an unlimited pool with a total of zero.
insert into pools (account_id, kind, key_id, unlimited, total, free, limit_alert_percent)
select @account_id, 2, @key_id::uuid, sqlc.narg('spend_limit')::bigint is null,
    coalesce(sqlc.narg('spend_limit')::bigint, 0), coalesce(sqlc.narg('spend_limit')::bigint, 0), b.limit_alert_percent
from pools b
where b.account_id = @account_id and b.kind = 1 and b.key_id is null;

-- name: GetKey :one
select * from api_keys where id = @id;

-- name: GetKeyByHash :one
select * from api_keys k
where k.id = coalesce((select f.id from api_keys f where f.lookup_hash = @lookup_hash), (select h.key_id from key_hashes h where h.hash = @lookup_hash));

-- name: LockKey :one
select * from api_keys where id = @id for update;

-- name: ListKeys :many
select * from api_keys
where account_id = @account_id and id > @after and (@external_id::text = '' or external_id = @external_id)
order by id
limit @row_limit;

-- name: UpdateKey :one
update api_keys
set name = @name, spend_limit = @spend_limit, revision = @revision, updated_at = now()
where id = @id
returning *;

-- name: RevokeKey :one
update api_keys set revoked_at = now(), revision = @revision, updated_at = now() where id = @id returning *;

-- name: KeySpending :many
select p.key_id::uuid as key_id, p.settled as spent,
    (select coalesce(sum(l.granted - l.returned - l.charged), 0) from leases l where l.pool_id = p.id)::bigint as reserved
from pools p
where p.key_id = any(@key_ids::uuid[]);
