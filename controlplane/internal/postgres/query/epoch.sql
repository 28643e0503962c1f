-- Loss of commits: see lease.Attendant.

-- name: ReadHighWaterMark :one
-- The greatest numbers given.
select m.cluster_epoch, m.revision, coalesce(pg_sequence_last_value('proxy_sessions_id_seq'), 0)::bigint as session,
    coalesce(pg_sequence_last_value('pools_id_seq'), 0)::bigint as pool
from cluster_state m;

-- name: InsertCommitMarker :execrows
-- None if the replica has been fenced. The lock has who fences wait for this commit, and comes after it.
insert into commit_markers (replica_id, number)
select r.id, @number from replicas r where r.id = @replica_id
for key share;

-- name: DeleteCommitMarkers :exec
delete from commit_markers where replica_id = @replica_id and number < @oldest;

-- name: MissingCommitMarkers :many
select asked.replica_id::text as replica_id, asked.number::bigint as number
from (select unnest(@replica_ids::text[]) as replica_id, unnest(@numbers::bigint[]) as number) asked
where not exists (select from commit_markers m where m.replica_id = asked.replica_id and m.number = asked.number);

-- name: LastCommitMarker :one
-- About when the last commit that is there was made: a replica makes one each second.
select committed_at from commit_markers order by committed_at desc limit 1;

-- name: RegisterReplica :execrows
-- Makes a replica known, unless a loss was declared that it does not know of.
insert into replicas (id)
select @id from cluster_state where cluster_epoch = @cluster_epoch
for share
on conflict (id) do update set registered_at = excluded.registered_at;

-- name: DeleteOrphanedCommitMarkers :exec
delete from commit_markers m
where committed_at < clock_timestamp() - interval '1 day' and not exists (select from replicas r where r.id = m.replica_id);

-- name: FenceReplicas :exec
delete from replicas where id = any(@ids::text[]);

-- name: FenceAllReplicas :exec
delete from replicas;

-- name: LockClusterState :exec
select from cluster_state for update;

-- name: DeclareLoss :exec
-- Usage is settled once more from an hour before what was settled last, of what is left: after an outage that may be much
-- older than its settlement. The replay of a loss a short time ago may not have ended: it is begun again.
update cluster_state
set cluster_epoch = @cluster_epoch, revision = @revision, lost_at = clock_timestamp(), usage_replay_from = (
    select least(
        t.created_at - interval '1 hour',
        (select min(u.finished_at) from usage_records u where u.settled_at >= t.created_at - interval '1 minute') - interval '1 hour',
        case when cluster_state.lost_at > clock_timestamp() - interval '1 day' then coalesce(cluster_state.usage_replay_from, 'epoch') end)
    from ledger_transactions t
    where t.kind = 'usage'
    order by t.id desc
    limit 1
);

-- name: RaiseIDs :exec
-- Prices and events in quarantine, which records and people name by their numbers, are not counted outside of Postgres: they
-- are raised by more than what can have been lost.
select setval('proxy_sessions_id_seq', @session::bigint), setval('pools_id_seq', @pool::bigint),
    setval('model_prices_version_seq', coalesce(pg_sequence_last_value('model_prices_version_seq'), 0) + 1048576),
    setval('quarantine_id_seq', coalesce(pg_sequence_last_value('quarantine_id_seq'), 0) + 1048576);

-- name: FenceAllSessions :exec
-- No session from before goes on. What it holds is kept as if it had just been renewed: it may be admitting still.
update proxy_sessions
set state = 2, valid_until = greatest(valid_until, clock_timestamp()) + make_interval(secs => @valid_seconds::float8)
where state < 3;

-- name: LostRevocations :many
-- Keys that were revoked once and are not. A key that is lost itself is not among them.
select lookup_hash from api_keys where lookup_hash = any(@hashes::bytea[]) and revoked_at is null
order by lookup_hash
for update;

-- name: RestoreRevocation :one
update api_keys set revoked_at = clock_timestamp(), revision = @revision, updated_at = clock_timestamp()
where lookup_hash = @lookup_hash and revoked_at is null
returning id, account_id;

-- name: SinceLoss :one
-- Seconds since commits were lost; very many if they never were.
select coalesce(extract(epoch from clock_timestamp() - lost_at), 1e9)::float8 from cluster_state;

-- name: IsRevoked :one
select exists (select from api_keys where lookup_hash = @lookup_hash and revoked_at is not null);

-- name: UsageReplay :one
select cluster_epoch, usage_replay_from from cluster_state;

-- name: RestoreSession :exec
-- Makes a session known that Postgres has lost: what its proxy tells of it is taken in, and what it runs stays covered.
insert into proxy_sessions (id, name, boot_id, state, valid_until, applied_revision)
overriding system value
select @id, @name, @boot_id, 2, clock_timestamp(), 0
from cluster_state
where cluster_state.lost_at is not null
on conflict do nothing;
