-- name: TakeRevision :one
-- Takes the next revision. The row stays locked until commit, so revisions are
-- in commit order.
update cluster_state set revision = revision + 1 returning revision;

-- name: CurrentRev :one
select revision from cluster_state;

-- name: RenewStreamIncarnation :exec
update cluster_state set stream_incarnation = gen_random_uuid();
