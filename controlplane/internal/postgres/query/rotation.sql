-- Rotation of master keys and peppers.

-- name: ListDataKeys :many
select id, sealed, master_key_id from data_keys order by id;

-- name: GetDataKey :one
select id, sealed, master_key_id from data_keys where id = @id;

-- name: InsertDataKey :exec
insert into data_keys (id, sealed, master_key_id) values (@id, @sealed, @master_key_id);

-- name: LockFirstDataKey :exec
-- Replicas that start at the same time on a new database create only one data key.
select pg_advisory_xact_lock(7310016);

-- name: IsNewDatabase :one
-- Reports whether there are no secrets yet.
select (not exists (select from data_keys) and not exists (select from accounts) and not exists (select from provider_credentials))::boolean as is_new;

-- name: StaleDataKeys :many
select id, sealed, master_key_id from data_keys where master_key_id <> @current and id > @after order by id limit @row_limit for update skip locked;

-- name: RewrapDataKey :exec
update data_keys set sealed = @sealed, master_key_id = @master_key_id where id = @id;

-- name: InsertRotation :execrows
insert into rotations (id, kind, target) values (@id, @kind, @target) on conflict do nothing;

-- name: RunningRotation :one
select * from rotations where kind = @kind and finished_at is null;

-- name: LastRotation :one
select * from rotations where kind = @kind order by id desc limit 1;

-- name: ClaimRotation :one
-- Returns no row while another replica executes a step.
select r.*, (extract(epoch from now() - r.started_at))::float8 as age_seconds
from rotations r where r.finished_at is null and r.kind = @kind for update skip locked;

-- name: AdvanceRotation :exec
update rotations
set position = @position, changed = changed + @changed::bigint, finished_at = case when @finished::boolean then now() end
where id = @id;

-- name: DirectKeys :many
select id, ciphertext, cipher_key_id from api_keys where cipher_key_id not like 'dk\_%' and id > @after order by id limit @row_limit for no key update skip locked;

-- name: ResealKey :exec
update api_keys set ciphertext = @ciphertext, cipher_key_id = @cipher_key_id where id = @id;

-- name: DirectCredentials :many
select id, sealed, cipher_key_id from provider_credentials where cipher_key_id not like 'dk\_%' and id > @after order by id limit @row_limit for no key update skip locked;

-- name: ResealCredential :exec
update provider_credentials set sealed = @sealed, cipher_key_id = @cipher_key_id where id = @id;

-- name: DirectResponses :many
select operation_id, body, cipher_key_id from idempotency_keys where cipher_key_id not like 'dk\_%' and operation_id > @after order by operation_id limit @row_limit for no key update skip locked;

-- name: ResealResponse :exec
update idempotency_keys set body = @body, cipher_key_id = @cipher_key_id where operation_id = @operation_id;

-- name: DirectWebhookSecrets :many
select id, endpoint_id, sealed, cipher_key_id from webhook_secrets where cipher_key_id not like 'dk\_%' and id > @after order by id limit @row_limit for no key update skip locked;

-- name: ResealWebhookSecret :exec
update webhook_secrets set sealed = @sealed, cipher_key_id = @cipher_key_id where id = @id;

-- name: CountUnrotatedSecrets :many
-- The numbers of data keys, and of directly encrypted secrets, under each master key.
select master_key_id::text as master_key_id, sum(data_keys)::bigint as data_keys, sum(secrets)::bigint as secrets
from (
    select master_key_id, 1 as data_keys, 0 as secrets from data_keys
    union all select cipher_key_id, 0, 1 from api_keys where cipher_key_id not like 'dk\_%'
    union all select cipher_key_id, 0, 1 from provider_credentials where cipher_key_id not like 'dk\_%'
    union all select cipher_key_id, 0, 1 from idempotency_keys where cipher_key_id not like 'dk\_%'
    union all select cipher_key_id, 0, 1 from webhook_secrets where cipher_key_id not like 'dk\_%'
) as s
group by master_key_id
order by master_key_id;

-- name: KeysToHash :many
-- Revoked keys need no further hash, and the text of hash-only keys and of replaced secrets is not known.
select k.id, k.lookup_hash, k.ciphertext, k.cipher_key_id
from api_keys k
where k.id > @position and k.revoked_at is null and k.ciphertext is not null and k.pepper_id is distinct from @pepper::text
    and not exists (select from key_hashes h where h.key_id = k.id and h.pepper_id = @pepper::text and h.secret = 'current')
order by k.id
limit @row_limit
for no key update of k skip locked;

-- name: SetPepper :exec
update api_keys set pepper_id = @pepper::text where id = @id;

-- name: InsertKeyHash :exec
insert into key_hashes (hash, key_id, pepper_id, revision) values (@hash, @key_id, @pepper_id::text, @revision) on conflict do nothing;

-- name: FurtherHashes :many
-- Those that a change at a revision concerns: not those of secrets that ended before, except in a revocation, which holds for
-- all of them also if a rotation is lost with the commits of a database.
select hash from key_hashes
where key_id = @key_id and (secret <> 'ended' or revision >= @revision or @revoked::boolean)
order by created_at, hash;

-- name: HashOnlyKeys :many
-- The keys that still need an old pepper: not revoked, without a hash under the current one, and hash-only; or with a previous
-- secret, whose text is not kept.
select k.id, k.account_id, k.name, coalesce(k.external_id, '') as external_id, coalesce(k.pepper_id, '') as pepper_id, k.created_at,
    coalesce((select to_char(max(u.used_on), 'YYYY-MM-DD') from usage_daily u where u.account_id = k.account_id and u.key_id = k.id), '')::text as last_used_on
from api_keys k
where k.id > @after and k.revoked_at is null and (
    k.ciphertext is null and k.pepper_id is distinct from @pepper::text
        and not exists (select from key_hashes h where h.key_id = k.id and h.pepper_id = @pepper::text and h.secret = 'current')
    or k.previous_until > now() and not exists (
        select from key_hashes h where h.key_id = k.id and h.pepper_id = @pepper::text and h.secret = 'previous'))
order by k.id
limit @row_limit;

-- name: CountPeppers :one
-- Counts the keys that are not revoked: those with a hash under the pepper, those that a rotation will hash under it, and
-- hash-only keys, and keys with a previous secret, without a hash of it under the pepper.
select count(*) filter (where k.pepper_id = @pepper::text or h.key_id is not null) as ready,
    count(*) filter (where k.pepper_id is distinct from @pepper::text and h.key_id is null and k.ciphertext is not null) as waiting,
    count(*) filter (where k.pepper_id is distinct from @pepper::text and h.key_id is null and k.ciphertext is null
        or k.previous_until > now() and p.key_id is null) as hash_only
from api_keys k
left join key_hashes h on h.key_id = k.id and h.pepper_id = @pepper::text and h.secret = 'current'
left join key_hashes p on p.key_id = k.id and p.pepper_id = @pepper::text and p.secret = 'previous'
where k.revoked_at is null;
