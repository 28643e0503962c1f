-- name: InsertToken :one
insert into admin_tokens (id, name, token_hash, scopes, expires_at, credits_per_day, reveals_per_day)
values (@id, @name, @token_hash, @scopes, @expires_at, sqlc.narg('credits_per_day'), sqlc.narg('reveals_per_day'))
on conflict (id) do nothing
returning *;

-- name: ListTokens :many
select * from admin_tokens order by id;

-- name: RevokeToken :one
update admin_tokens set revoked_at = coalesce(revoked_at, now()) where id = @id returning *;

-- name: GetToken :one
-- touch_due: the token is valid, and its last recorded use is a minute ago or older. Recording each use would cost a write
-- per request.
select sqlc.embed(t), coalesce(t.expires_at <= now(), false)::boolean as expired,
    (t.revoked_at is null and coalesce(t.expires_at > now(), true)
        and coalesce(t.last_used_at < now() - interval '1 minute', true))::boolean as touch_due
from admin_tokens t
where t.token_hash = @token_hash;

-- name: TouchToken :exec
update admin_tokens set last_used_at = now()
where id = @id and (last_used_at is null or last_used_at < now() - interval '1 minute');

-- name: InsertIdempotencyKey :execrows
insert into idempotency_keys (actor, key, method, path, body_hash, operation_id)
values (@actor, @key, @method, @path, @body_hash, @operation_id)
on conflict (actor, key) do nothing;

-- name: GetIdempotencyKey :one
select * from idempotency_keys where actor = @actor and key = @key;

-- name: FinishIdempotencyKey :exec
update idempotency_keys
set status = @status::integer, content_type = @content_type::text, etag = @etag, body = @body::bytea, cipher_key_id = @cipher_key_id::text
where actor = @actor and key = @key and operation_id = @operation_id and status is null;

-- name: ReleaseIdempotencyKey :exec
delete from idempotency_keys
where actor = @actor and key = @key and operation_id = @operation_id and status is null;

-- name: ExpireIdempotencyKeys :execrows
delete from idempotency_keys k
where (k.actor, k.key) in (
    select o.actor, o.key from idempotency_keys o
    where o.created_at < now() - make_interval(secs => @age_seconds::double precision)
    order by o.created_at
    limit @max_rows
    for update skip locked
);

-- name: ListSessions :many
-- The open sessions, and the closed ones whose proxy has reported requests whose usage has never arrived, unless a later
-- session of the proxy is active: it publishes what is left.
select s.id, s.name, s.boot_id, s.build, s.state, s.valid_until, s.registered_at, s.last_heartbeat_at, s.applied_revision, s.catalog_revision,
    s.spool_capacity, s.running, s.spool_used, s.draining, (s.valid_until < clock_timestamp())::boolean as expired, n.unsettled::bigint as unsettled
from proxy_sessions s
cross join lateral (select greatest(s.started - coalesce((select sum(upper(r) - lower(r)) from unnest(s.settled_seqs) as r), 0), 0)::bigint as unsettled) as n
where s.state < 3
    or (n.unsettled > 0 and not exists (select from proxy_sessions l where l.name = s.name and l.id > s.id and l.state = 1 and l.valid_until >= clock_timestamp()))
order by s.name, s.id;

-- name: LatestChange :one
select coalesce(max(revision), 0)::bigint from key_changes;

-- name: LockActor :exec
-- Transactions of one token that count against its limits run one after the other.
select pg_advisory_xact_lock(hashtextextended(@actor, 4711));

-- name: CreditsToday :one
select coalesce(sum(abs(e.amount)), 0)::bigint
from ledger_transactions t join ledger_entries e on e.transaction_id = t.id
where t.actor = @actor and t.kind <> 'usage' and t.created_at >= date_trunc('day', now(), 'UTC')
    and e.ledger_account = 'customer';

-- name: RevealsToday :one
select count(*) from audit_log
where actor = @actor and action = 'key.reveal' and created_at >= date_trunc('day', now(), 'UTC');
