-- name: NextRev :one
-- Takes the next revision. The row stays locked until commit, so revisions are
-- in commit order.
update meta set rev = rev + 1 returning rev;

-- name: CurrentRev :one
select rev from meta;

-- name: RenewIncarnation :exec
update meta set stream_incarnation = gen_random_uuid();
