-- What is removed when it can no longer matter, in small batches: each
-- statement is a transaction of its own and takes few locks.

-- name: ClosedSessions :many
-- Closed sessions with leases or ops that are still to be removed.
select id from dataplane_sessions where state = 3 and not cleared order by id limit @max_rows;

-- name: RemoveLeases :execrows
-- A closed session's leases hold nothing, so conservation does not change; one that does hold something is left for the
-- self-check to find.
delete from leases l
where (l.pool_id, l.session_id) in (
    select o.pool_id, o.session_id
    from leases o
    join dataplane_sessions s on s.id = o.session_id
    where o.session_id = @session_id and s.state = 3 and o.g - o.r - o.c = 0
    order by o.pool_id
    limit @max_rows
    for update of o skip locked
);

-- name: RemoveLeaseOps :execrows
delete from lease_ops o
where o.session_id = @session_id and o.account_id in (
    select p.account_id
    from lease_ops p
    join dataplane_sessions s on s.id = p.session_id
    where p.session_id = @session_id and s.state = 3
    limit @max_rows
    for update of p skip locked
);

-- name: NoteCleared :execrows
update dataplane_sessions s
set cleared = true
where s.id = @id and s.state = 3
    and not exists (select from leases l where l.session_id = s.id)
    and not exists (select from lease_ops o where o.session_id = s.id);

-- name: RemoveSessions :execrows
delete from dataplane_sessions s
where s.id in (
    select o.id from dataplane_sessions o
    where o.state = 3 and o.cleared and o.valid_until < clock_timestamp() - make_interval(secs => @age_seconds::float8)
    order by o.id
    limit @max_rows
    for update skip locked
);

-- name: RemoveKeyChanges :execrows
-- What every session that may still renew has applied. The newest stays, since the next change names it, and revocations
-- stay, since revoking again answers by them.
delete from key_changes c
where c.rev in (
    select o.rev from key_changes o
    where o.rev < (select max(rev) from key_changes)
        and o.rev <= (select coalesce(min(s.applied_rev), 9223372036854775807) from dataplane_sessions s where s.state = 1)
        and o.at < clock_timestamp() - make_interval(secs => @age_seconds::float8)
        and o.kind <> 'key_revoked'
    order by o.rev
    limit @max_rows
);
