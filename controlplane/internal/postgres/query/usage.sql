-- The time of a request is in its id, so a range of times is a range of ids. The
-- table is partitioned and indexed by the id.

-- name: GetUsage :one
select * from usage_records where request_id = @request_id;

-- name: AccountOfRequest :one
select account_id from usage_records where request_id = @request_id;

-- name: ListUsage :many
select * from usage_records
where request_id >= @floor and request_id < @ceiling
order by request_id desc
limit @row_limit;

-- name: ListAccountUsage :many
-- Reads the newest records of each key of the account: the newest records of the account are among them, because a key
-- never changes its account.
select * from usage_records
where request_id = any(array(
    select r.request_id
    from api_keys k
    cross join lateral (
        select u.request_id from usage_records u
        where u.key_id = k.id and u.request_id >= @floor and u.request_id < @ceiling and (@model::text = '' or u.model = @model)
        order by u.request_id desc
        limit @row_limit
    ) as r
    where k.account_id = @account_id
    order by r.request_id desc
    limit @row_limit
))
order by request_id desc;

-- name: ListKeyUsage :many
select * from usage_records
where key_id = @key_id and (sqlc.narg('account_id')::uuid is null or account_id = sqlc.narg('account_id'))
    and request_id >= @floor and request_id < @ceiling and (@model::text = '' or model = @model)
order by request_id desc
limit @row_limit;

-- name: GetSheet :one
select sheet from model_prices where version = @version;

-- name: ListModelUsage :many
select * from usage_records
where model = @model and request_id >= @floor and request_id < @ceiling
order by request_id desc
limit @row_limit;

-- Exports are in ascending order.

-- name: ExportUsage :many
select * from usage_records
where request_id > @after and request_id < @ceiling
order by request_id
limit @row_limit;

-- name: ExportModelUsage :many
select * from usage_records
where model = @model and request_id > @after and request_id < @ceiling
order by request_id
limit @row_limit;

-- name: ExportAccountUsage :many
select * from usage_records
where request_id = any(array(
    select r.request_id
    from api_keys k
    cross join lateral (
        select u.request_id from usage_records u
        where u.key_id = k.id and u.request_id > @after and u.request_id < @ceiling and (@model::text = '' or u.model = @model)
        order by u.request_id
        limit @row_limit
    ) as r
    where k.account_id = @account_id
    order by r.request_id
    limit @row_limit
))
order by request_id;

-- name: ExportKeyUsage :many
select * from usage_records
where key_id = @key_id and (sqlc.narg('account_id')::uuid is null or account_id = sqlc.narg('account_id'))
    and request_id > @after and request_id < @ceiling and (@model::text = '' or model = @model)
order by request_id
limit @row_limit;
