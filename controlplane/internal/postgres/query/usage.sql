-- The time of a request is in its id, so bounds of time are bounds of ids,
-- which partitions and indexes go by.

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
select * from usage_records
where account_id = @account_id and request_id >= @floor and request_id < @ceiling and (@model::text = '' or model = @model)
order by request_id desc
limit @row_limit;

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

-- Exports go forward.

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
where account_id = @account_id and request_id > @after and request_id < @ceiling and (@model::text = '' or model = @model)
order by request_id
limit @row_limit;

-- name: ExportKeyUsage :many
select * from usage_records
where key_id = @key_id and (sqlc.narg('account_id')::uuid is null or account_id = sqlc.narg('account_id'))
    and request_id > @after and request_id < @ceiling and (@model::text = '' or model = @model)
order by request_id
limit @row_limit;
