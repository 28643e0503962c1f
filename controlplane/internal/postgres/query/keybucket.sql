-- What the bucket of key records must have: see package keybucket.

-- name: KeyHead :one
select cluster_epoch, revision from cluster_state;

-- name: HashesOfKeys :many
-- The hashes of the next keys, in the order of the keys' ids.
with page as (
    select k.id, k.lookup_hash from api_keys k where k.id > @after order by k.id limit @row_limit
)
select p.id, p.lookup_hash::bytea as hash from page p
union all
select p.id, h.hash from page p join key_hashes h on h.key_id = p.id
order by 1;

-- name: HashesOfChangedKeys :many
-- The same of keys that were changed since a revision, themselves, by their account or by a limit, or have a further hash since
-- then.
with changed as (
    select k.id from api_keys k where k.revision > @since and k.id > @after
    union
    select k.id from accounts a join api_keys k on k.account_id = a.id where a.revision > @since and k.id > @after
    union
    select k.id from limits l join api_keys k on k.account_id = l.account_id
        and (l.key_id = k.id or l.project_id = k.project_id or (l.key_id is null and l.project_id is null))
    where l.revision > @since and k.id > @after
    union
    select h.key_id from key_hashes h where h.revision > @since and h.key_id > @after
), page as (
    select k.id, k.lookup_hash from changed c join api_keys k on k.id = c.id order by k.id limit @row_limit
)
select p.id, p.lookup_hash::bytea as hash from page p
union all
select p.id, h.hash from page p join key_hashes h on h.key_id = p.id
order by 1;

-- name: CountAllKeys :one
select count(*) from api_keys;
