-- name: InsertConsoleSession :one
insert into console_sessions (id, secret_hash, token_hash, name, scopes, method, address, agent, expires_at)
values (@id, @secret_hash, sqlc.narg('token_hash'), @name, @scopes, @method, @address, @agent, now() + make_interval(secs => @length_seconds::float8))
returning *;

-- name: UseConsoleSession :one
-- Records the use at most once a minute.
with found as (
    select s.*, (s.last_used_at < now() - interval '1 minute')::boolean as touch_due
    from console_sessions s
    where s.secret_hash = @secret_hash and s.ended_at is null and s.expires_at > now()
        and s.last_used_at > now() - make_interval(secs => @idle_seconds::float8)
), touched as (
    update console_sessions c set last_used_at = now() from found f where c.id = f.id and f.touch_due
)
select f.id, f.token_hash, f.name, f.scopes, f.method, f.address, f.agent, f.created_at, f.last_used_at, f.expires_at, now()::timestamptz as read_at
from found f;

-- name: ListConsoleSessions :many
-- The sessions that have not ended, newest first.
select * from console_sessions
where ended_at is null and expires_at > now() and last_used_at > now() - make_interval(secs => @idle_seconds::float8)
order by id desc;

-- name: EndConsoleSession :one
update console_sessions set ended_at = coalesce(ended_at, now()) where id = @id returning *;

-- name: RemoveConsoleSessions :execrows
delete from console_sessions where coalesce(ended_at, expires_at) < now() - interval '30 days';
