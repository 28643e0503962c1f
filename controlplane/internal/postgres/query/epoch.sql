-- Recovery from lost commits: see package recovery.

-- name: ReadHighWaterMark :one
-- The greatest revision and ids that were assigned.
select m.cluster_epoch, m.recovered_epoch < m.cluster_epoch as recovering, m.revision, coalesce(pg_sequence_last_value('proxy_sessions_id_seq'), 0)::bigint as session,
    coalesce(pg_sequence_last_value('pools_id_seq'), 0)::bigint as pool
from cluster_state m;

-- name: InsertCommitMarker :execrows
-- No row is written if the replica has been fenced. The lock makes a transaction that fences it wait for this commit.
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
-- The time of the last commit that was not lost. It is about a second exact, since every replica commits each second.
select committed_at from commit_markers order by committed_at desc limit 1;

-- name: RegisterReplica :execrows
-- Registers a replica, unless a loss was declared since the epoch that it knows.
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
-- Usage is settled again from an hour before the last settled event that was not lost: after an outage, an event may be
-- much older than its settlement. The replay of a recent loss may not have ended, so it starts again.
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
-- The greatest price versions and quarantine id are not known outside of Postgres, so they are raised by more than the
-- number that can have been lost.
select setval('proxy_sessions_id_seq', @session::bigint), setval('pools_id_seq', @pool::bigint),
    setval('model_prices_version_seq', coalesce(pg_sequence_last_value('model_prices_version_seq'), 0) + 1048576),
    setval('provider_prices_version_seq', coalesce(pg_sequence_last_value('provider_prices_version_seq'), 0) + 1048576),
    setval('quarantine_id_seq', coalesce(pg_sequence_last_value('quarantine_id_seq'), 0) + 1048576);

-- name: FenceAllSessions :exec
-- All sessions of the earlier epoch are fenced. Their proxies may still admit requests, so the leases are kept as long as if
-- the sessions had just had a heartbeat.
update proxy_sessions
set state = 2, valid_until = greatest(valid_until, clock_timestamp()) + make_interval(secs => @valid_seconds::float8)
where state < 3;

-- name: LostRevocations :many
-- Keys whose revocation was confirmed and then lost. Keys that were lost themselves are not among them.
select lookup_hash from api_keys where lookup_hash = any(@hashes::bytea[]) and revoked_at is null
order by lookup_hash
for update;

-- name: RestoreRevocation :one
update api_keys set revoked_at = clock_timestamp(), revision = @revision, updated_at = clock_timestamp()
where lookup_hash = @lookup_hash and revoked_at is null
returning id, account_id;

-- name: Recovering :one
-- Reports whether the recovery wait after a declared loss is not over, the time of the loss, and the seconds since; a very
-- large number if there was none.
select recovered_epoch < cluster_epoch as recovering, lost_at, coalesce(extract(epoch from clock_timestamp() - lost_at), 1e9)::float8 as since_loss
from cluster_state;

-- name: CountActiveReplicas :one
-- The replicas that have committed in the last seconds: each commits a checkpoint every second.
select count(*) from replicas r
where exists (select from commit_markers m where m.replica_id = r.id and m.committed_at > clock_timestamp() - interval '10 seconds');

-- name: EndRecoveryWait :exec
update cluster_state set recovered_epoch = @epoch where cluster_epoch = @epoch and recovered_epoch < @epoch;

-- name: IsRevoked :one
select exists (select from api_keys where lookup_hash = @lookup_hash and revoked_at is not null);

-- name: UsageReplay :one
select cluster_epoch, usage_replay_from, lost_at from cluster_state;

-- name: NewestRecord :one
-- The newest request that is settled, by the time in its id, and when it was settled.
select request_id, settled_at from usage_records order by request_id desc limit 1;

-- name: RestoreSession :exec
-- Inserts a session that Postgres has lost, so that its reports and events are accepted.
insert into proxy_sessions (id, name, boot_id, state, window_ms, valid_until, applied_revision)
overriding system value
select @id, @name, @boot_id, 2, @window_ms, clock_timestamp(), 0
from cluster_state
where cluster_state.lost_at is not null
on conflict do nothing;
