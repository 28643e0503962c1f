-- name: InsertKeyChange :one
-- The caller has taken the revision, so no other change can be inserted before it commits.
insert into key_changes (revision, previous_revision, kind, key_id, account_id, lookup_hash)
select @revision::bigint, coalesce(max(c.revision), 0), @kind, sqlc.narg('key_id')::uuid, @account_id::uuid, sqlc.narg('lookup_hash')::bytea
from key_changes c
returning revision, previous_revision;

-- name: RevocationsOfKey :many
-- The revocations of the key's hashes. The last is that of its own hash: a proxy that has applied it has applied the others.
select revision, previous_revision, lookup_hash from key_changes where key_id = @key_id::uuid and kind = 'key_revoked' order by revision;

-- name: InsertAudit :exec
insert into audit_log (actor, action, object, before, after, request_id)
values (@actor, @action, @object, @before, @after, @request_id);

-- name: InsertAudits :exec
-- One entry for each object, all with the same action. The arrays have one element for each object.
insert into audit_log (actor, action, object, after, request_id)
select @actor::text, @action::text, o.object, o.after::jsonb, @request_id::text
from (select unnest(@objects::text[]) as object, unnest(@afters::text[]) as after) o;

-- name: ListAudit :many
select * from audit_log
where (@object::text = '' or object = @object) and (@before_id::bigint = 0 or id < @before_id)
    and (@actor::text = '' or actor = @actor)
    and (@action::text = '' or action = @action or action like replace(@action, '_', '\_') || '.%')
    and (@request_id::text = '' or request_id = @request_id)
    and (sqlc.narg('from_time')::timestamptz is null or created_at >= sqlc.narg('from_time'))
    and (sqlc.narg('to_time')::timestamptz is null or created_at < sqlc.narg('to_time'))
order by id desc
limit @row_limit;
