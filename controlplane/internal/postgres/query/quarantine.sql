-- Events that could not be settled, and the decisions of operators.

-- name: ListQuarantined :many
select id, session_id, seq, request_id, reason, created_at, resolved_at, resolution, note
from quarantine
where resolution = @resolution and (@before_id::bigint = 0 or id < @before_id)
order by id desc
limit @row_limit;

-- name: GetQuarantined :one
select id, session_id, seq, request_id, reason, payload, created_at, resolved_at, resolution, note from quarantine where id = @id;

-- name: ResolveQuarantined :execrows
-- A released event has been charged, so it is recorded as released even if it was dismissed in the meantime.
update quarantine
set resolved_at = clock_timestamp(), resolution = @resolution, note = @note
where id = @id and (resolved_at is null or (resolution = 'dismissed' and @resolution = 'released'));

-- name: CountOpenQuarantined :one
select count(*) from quarantine where resolved_at is null;
