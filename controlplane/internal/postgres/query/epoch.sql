-- Loss of commits: see lease.Mark.

-- name: Beat :exec
update heartbeat set beat = beat + 1;

-- name: ReadMark :one
-- What Postgres has come to, with the greatest ids given.
select m.cluster_epoch, m.rev, h.beat, coalesce(pg_sequence_last_value('dataplane_sessions_id_seq'), 0)::bigint as session,
    coalesce(pg_sequence_last_value('pools_id_seq'), 0)::bigint as pool,
    (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint as wal
from meta m
cross join heartbeat h;

-- name: ReadWAL :one
select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint;

-- name: LockMeta :exec
select from meta for update;

-- name: DeclareLoss :exec
-- Usage is settled once more from an hour before what was settled last, of what is left: after an outage that may be much
-- older than its settlement. The replay of a loss a short time ago may not have ended: it is begun again.
update meta
set cluster_epoch = @cluster_epoch, rev = @rev, lost_at = clock_timestamp(), replay_from = (
    select least(
        t.created_at - interval '1 hour',
        (select min(u.finished_at) from usage_records u where u.settled_at >= t.created_at - interval '1 minute') - interval '1 hour',
        case when meta.lost_at > clock_timestamp() - interval '1 day' then coalesce(meta.replay_from, 'epoch') end)
    from ledger_transactions t
    where t.kind = 'usage'
    order by t.id desc
    limit 1
);

-- name: SetBeat :exec
update heartbeat set beat = @beat;

-- name: RaiseIDs :exec
select setval('dataplane_sessions_id_seq', @session::bigint), setval('pools_id_seq', @pool::bigint);

-- name: FenceAll :exec
-- No session from before goes on. What it holds is kept as if it had just been renewed: it may be admitting still.
update dataplane_sessions
set state = 2, valid_until = greatest(valid_until, clock_timestamp()) + make_interval(secs => @valid_seconds::float8)
where state < 3;

-- name: RevokeLost :one
update api_keys set revoked_at = clock_timestamp(), rev = @rev, updated_at = clock_timestamp()
where lookup_hash = @lookup_hash and revoked_at is null
returning id, account_id;

-- name: SinceLoss :one
-- Seconds since commits were lost; very many if they never were.
select coalesce(extract(epoch from clock_timestamp() - lost_at), 1e9)::float8 from meta;

-- name: Revoked :one
select exists (select from api_keys where lookup_hash = @lookup_hash and revoked_at is not null);

-- name: Replay :one
select cluster_epoch, replay_from from meta;

-- name: RestoreSession :exec
-- Makes a session known that Postgres has lost: what its proxy tells of it is taken in, and what it runs stays covered.
insert into dataplane_sessions (id, name, boot_id, state, valid_until, applied_rev)
overriding system value
select @id, @name, @boot_id, 2, clock_timestamp(), 0
from meta
where meta.lost_at is not null
on conflict do nothing;
