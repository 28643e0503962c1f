-- name: InsertKeys :many
-- The arrays have one element for each key. Returns the rows of those keys whose id, hash and external id did not exist. An
-- empty text or ciphertext, and a negative limit, mean null. Settings are objects with the columns of that name.
insert into api_keys (id, account_id, external_id, name, lookup_hash, pepper_id, ciphertext, cipher_key_id, hint, spend_limit, revision,
    description, metadata, expires_at, max_concurrent_requests, expiry_event_at, paused, models, networks, project_id)
select k.id, k.account_id, nullif(k.external_id, ''), k.name, k.lookup_hash, nullif(k.pepper_id, ''), nullif(k.ciphertext, ''::bytea),
    nullif(k.cipher_key_id, ''), k.hint, case when k.spend_limit >= 0 then k.spend_limit end, @revision::bigint,
    k.settings ->> 'description', k.settings -> 'metadata', (k.settings ->> 'expires_at')::timestamptz,
    (k.settings ->> 'max_concurrent_requests')::integer, (k.settings ->> 'expiry_event_at')::timestamptz, (k.settings ->> 'paused')::boolean, k.settings -> 'models', k.settings -> 'networks',
    (k.settings ->> 'project_id')::uuid
from (
    select unnest(@ids::uuid[]) as id, unnest(@account_ids::uuid[]) as account_id, unnest(@external_ids::text[]) as external_id,
        unnest(@names::text[]) as name, unnest(@lookup_hashes::bytea[]) as lookup_hash, unnest(@pepper_ids::text[]) as pepper_id,
        unnest(@ciphertexts::bytea[]) as ciphertext, unnest(@cipher_key_ids::text[]) as cipher_key_id,
        unnest(@hints::text[]) as hint, unnest(@spend_limits::bigint[]) as spend_limit,
        unnest(@settings::jsonb[]) as settings
) k
where not exists (select from key_hashes h where h.hash = k.lookup_hash)
on conflict do nothing
returning *;

-- name: InsertLimitPools :exec
-- A key without a limit has an unlimited pool with a total of zero.
insert into pools (account_id, kind, key_id, unlimited, total, free, limit_alert_percent)
select k.account_id, 2, k.id, k.spend_limit is null, coalesce(k.spend_limit, 0), coalesce(k.spend_limit, 0), b.limit_alert_percent
from api_keys k
join pools b on b.account_id = k.account_id and b.kind = 1 and b.key_id is null
where k.id = any(@key_ids::uuid[]);

-- name: InsertKeySlots :exec
-- The pools of the slots of new keys that have slots of their own.
insert into pools (account_id, kind, key_id, total, free)
select k.account_id, 3, k.id, k.max_concurrent_requests, k.max_concurrent_requests
from api_keys k
where k.id = any(@key_ids::uuid[]) and k.max_concurrent_requests is not null
on conflict do nothing;

-- name: GetKey :one
select * from api_keys where id = @id;

-- name: GetKeyByHash :one
select * from api_keys k
where k.id = coalesce((select f.id from api_keys f where f.lookup_hash = @lookup_hash), (select h.key_id from key_hashes h where h.hash = @lookup_hash));

-- name: KeyOfSecret :one
-- Whether the secret of the hash was valid at a moment: it is the current one, or the previous one, whose overlap had not ended.
select f.id, true as valid from api_keys f where f.lookup_hash = @lookup_hash
union all
select k.id, (h.secret = 'current' or (h.secret = 'previous' and k.previous_until > @moment::timestamptz)) is true as valid
from key_hashes h join api_keys k on k.id = h.key_id where h.hash = @lookup_hash
limit 1;

-- name: LockKey :one
select * from api_keys where id = @id for update;

-- name: ListKeys :many
select * from api_keys
where account_id = @account_id and id > @after and (@external_id::text = '' or external_id = @external_id)
    and (sqlc.narg('project_id')::uuid is null or project_id = sqlc.narg('project_id') or sqlc.narg('project_id') = 'ffffffff-ffff-ffff-ffff-ffffffffffff' and project_id is null)
    and (@status::text = '' or @status = case
        when revoked_at is not null then 'revoked'
        when expires_at <= clock_timestamp() then 'expired'
        when paused then 'paused'
        else 'active'
    end)
order by id
limit @row_limit;

-- name: UpdateKey :one
update api_keys
set name = @name, spend_limit = @spend_limit, description = @description, metadata = @metadata, expires_at = sqlc.narg('expires_at'),
    expiry_event_at = case when expires_at is distinct from sqlc.narg('expires_at') then sqlc.narg('expiry_event_at') else expiry_event_at end,
    max_concurrent_requests = sqlc.narg('max_concurrent_requests'), paused = @paused, models = @models, networks = @networks, project_id = sqlc.narg('project_id'), revision = @revision, updated_at = now()
where id = @id
returning *;

-- name: RetireHashes :exec
-- The hashes of the current secret become those of the previous one, or end at once; those of the previous one end.
with retired as (
    update key_hashes set secret = case when secret = 'current' and @overlap::boolean then 'previous' else 'ended' end, revision = @revision
    where key_id = @key_id and secret <> 'ended'
)
insert into key_hashes (hash, key_id, pepper_id, hash_only, secret, revision)
select k.lookup_hash, k.id, k.pepper_id, k.ciphertext is null, case when @overlap::boolean then 'previous' else 'ended' end, @revision
from api_keys k
where k.id = @key_id;

-- name: RotateKey :one
update api_keys
set lookup_hash = @lookup_hash, pepper_id = @pepper_id::text, ciphertext = @ciphertext::bytea, cipher_key_id = @cipher_key_id::text, hint = @hint,
    rotation_id = @rotation_id::uuid, rotated_at = clock_timestamp(), previous_hint = case when @overlap_seconds::float8 > 0 then hint else '' end,
    previous_until = case when @overlap_seconds::float8 > 0
        then date_trunc('milliseconds', clock_timestamp() + make_interval(secs => @overlap_seconds::float8)) end,
    revision = @revision, updated_at = now()
where id = @id
returning *;

-- name: RevokeKey :one
update api_keys set revoked_at = now(), revision = @revision, updated_at = now() where id = @id returning *;

-- name: LockExpiringKeys :many
-- The keys of which an event about the expiry is due.
select id, account_id, expires_at::timestamptz as expires_at from api_keys
where expiry_event_at <= @moment::timestamptz and revoked_at is null
order by expiry_event_at
limit @row_limit
for no key update skip locked;

-- name: SetExpiryEvent :exec
update api_keys set expiry_event_at = sqlc.narg('expiry_event_at') where id = @id;

-- name: LastRequestsOfKeys :many
-- The last settled request of each key, by its id, which has the time. Nothing is written for it: the index of the records finds it.
select k.id::uuid as key_id, r.request_id
from unnest(@key_ids::uuid[]) as k (id)
cross join lateral (select u.request_id from usage_records u where u.key_id = k.id order by u.request_id desc limit 1) as r;

-- name: LastDaysOfKeys :many
-- The last day of use of keys without a record, once records were dropped.
select d.key_id, max(d.used_on)::date as used_on
from usage_daily d
where d.account_id = any(@account_ids::uuid[]) and d.key_id = any(@key_ids::uuid[]) and exists (select from usage_months m where m.dropped_at is not null)
group by d.key_id;

-- name: KeySpending :many
select p.key_id::uuid as key_id, p.id as pool_id, p.settled as spent,
    (select coalesce(sum(l.granted - l.returned - l.charged), 0) from leases l where l.pool_id = p.id)::bigint as reserved
from pools p
where p.key_id = any(@key_ids::uuid[]) and p.kind = 2;
