-- Deletion of rows that are not needed any more, in small batches: each statement
-- is a transaction of its own and takes few locks.

-- name: ClosedSessions :many
-- Closed sessions whose leases and lease responses are not deleted yet.
select id from proxy_sessions where state = 3 and not cleared order by id limit @max_rows;

-- name: RemoveLeases :execrows
-- A closed session's leases have nothing outstanding, so conservation does not change. A lease that has something
-- outstanding is kept, so that the ledger check finds it.
delete from leases l
where (l.pool_id, l.session_id) in (
    select o.pool_id, o.session_id
    from leases o
    join proxy_sessions s on s.id = o.session_id
    where o.session_id = @session_id and s.state = 3 and o.granted - o.returned - o.charged = 0
    order by o.pool_id
    limit @max_rows
    for update of o skip locked
);

-- name: RemoveLeaseResponses :execrows
delete from lease_responses o
where o.session_id = @session_id and o.account_id in (
    select p.account_id
    from lease_responses p
    join proxy_sessions s on s.id = p.session_id
    where p.session_id = @session_id and s.state = 3
    limit @max_rows
    for update of p skip locked
);

-- name: MarkSessionCleared :execrows
update proxy_sessions s
set cleared = true
where s.id = @id and s.state = 3
    and not exists (select from leases l where l.session_id = s.id)
    and not exists (select from lease_responses o where o.session_id = s.id);

-- name: RemoveSessions :execrows
delete from proxy_sessions s
where s.id in (
    select o.id from proxy_sessions o
    where o.state = 3 and o.cleared and o.valid_until < clock_timestamp() - make_interval(secs => @age_seconds::float8)
    order by o.id
    limit @max_rows
    for update skip locked
);

-- name: RemoveKeyChanges :execrows
-- Deletes changes that every active session has applied. The newest change is kept, since the next one refers to it.
-- Revocations are kept, since revoking a key again returns them.
delete from key_changes c
where c.revision in (
    select o.revision from key_changes o
    where o.revision < (select max(revision) from key_changes)
        and o.revision <= (select coalesce(min(s.applied_revision), 9223372036854775807) from proxy_sessions s where s.state = 1)
        and o.created_at < clock_timestamp() - make_interval(secs => @age_seconds::float8)
        and o.kind <> 'key_revoked'
    order by o.revision
    limit @max_rows
);
