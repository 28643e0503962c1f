-- The time of a request is in its id, so a range of times is a range of ids. The
-- table is partitioned and indexed by the id.

-- name: GetUsage :one
select * from usage_records where request_id = @request_id;

-- name: ChargeOfRequest :one
select account_id, cost from usage_records where request_id = @request_id;

-- name: ListUsage :many
-- It is planned for its values, so that a filter without a value is no condition and one with a value finds its index. So is its order,
-- the newest first or the oldest: the other one is a constant.
-- Provider, route and credential are those of one call: of the one that served the request, or of another.
select * from usage_records
where request_id >= @floor and request_id < @ceiling
    and (sqlc.narg('key_id')::uuid is null or key_id = sqlc.narg('key_id'))
    and (sqlc.narg('account_id')::uuid is null or account_id = sqlc.narg('account_id'))
    and (sqlc.narg('project_id')::uuid is null or project_id = sqlc.narg('project_id') or sqlc.narg('project_id') = 'ffffffff-ffff-ffff-ffff-ffffffffffff' and project_id is null)
    and (@model::text = '' or model = @model)
    and (@status::text = '' or status = @status)
    and ((@provider::text = '' or provider = @provider) and (@route::text = '' or route = @route) and (@credential::text = '' or credential = @credential)
        or attempts is not null and exists (select from jsonb_array_elements(attempts) as a where a -> 'skipped' is null
            and (@provider = '' or a ->> 'provider' = @provider) and (@route = '' or a ->> 'route' = @route)
            and (@credential = '' or a ->> 'credential_name' = @credential)))
    and (@format::text = '' or format = @format)
    and (@any_stream::boolean or stream = @stream)
    and (@any_estimated::boolean or estimated = @estimated)
    and cost >= @min_cost::bigint
order by case when @oldest_first::boolean then request_id end, case when not @oldest_first then request_id end desc
limit @row_limit;

-- name: ListAccountUsage :many
-- Reads the newest records of each key of the account, or the oldest: those of the account are among them, because a key never
-- changes its account.
select * from usage_records
where request_id = any(array(
    select r.request_id
    from api_keys k
    cross join lateral (
        select u.request_id from usage_records u
        where u.key_id = k.id and u.request_id >= @floor and u.request_id < @ceiling
            and (sqlc.narg('project_id')::uuid is null or u.project_id = sqlc.narg('project_id') or sqlc.narg('project_id') = 'ffffffff-ffff-ffff-ffff-ffffffffffff' and u.project_id is null)
            and (@model::text = '' or u.model = @model)
            and (@status::text = '' or u.status = @status)
            and ((@provider::text = '' or u.provider = @provider) and (@route::text = '' or u.route = @route) and (@credential::text = '' or u.credential = @credential)
                or u.attempts is not null and exists (select from jsonb_array_elements(u.attempts) as a where a -> 'skipped' is null
                    and (@provider = '' or a ->> 'provider' = @provider) and (@route = '' or a ->> 'route' = @route)
                    and (@credential = '' or a ->> 'credential_name' = @credential)))
            and (@format::text = '' or u.format = @format)
            and (@any_stream::boolean or u.stream = @stream)
            and (@any_estimated::boolean or u.estimated = @estimated)
            and u.cost >= @min_cost
        order by case when @oldest_first::boolean then u.request_id end, case when not @oldest_first then u.request_id end desc
        limit @row_limit
    ) as r
    where k.account_id = @account_id
    order by case when @oldest_first::boolean then r.request_id end, case when not @oldest_first then r.request_id end desc
    limit @row_limit
))
order by case when @oldest_first::boolean then request_id end, case when not @oldest_first then request_id end desc;

-- name: UsageBeyond :one
-- The id beyond the given number of newer records, or of older ones. An index alone finds it.
select request_id from usage_records
where request_id >= @floor and request_id < @ceiling
    and (sqlc.narg('key_id')::uuid is null or key_id = sqlc.narg('key_id'))
    and (@model::text = '' or model = @model)
order by case when @oldest_first::boolean then request_id end, case when not @oldest_first then request_id end desc
offset @looked limit 1;

-- name: CountKeys :one
select count(*) from api_keys where account_id = @account_id;

-- name: AccountUsageBeyond :one
-- The newest id that has the given number of newer records of its key, or the oldest that has as many older ones.
select r.request_id
from api_keys k
cross join lateral (
    select u.request_id from usage_records u
    where u.key_id = k.id and u.request_id >= @floor and u.request_id < @ceiling
    order by case when @oldest_first::boolean then u.request_id end, case when not @oldest_first then u.request_id end desc
    offset @of_key limit 1
) as r
where k.account_id = @account_id
order by case when @oldest_first::boolean then r.request_id end, case when not @oldest_first then r.request_id end desc
limit 1;

-- name: GetSheet :one
select sheet from model_prices where version = @version;

-- name: ListModelUsage :many
select * from usage_records
where model = @model and request_id >= @floor and request_id < @ceiling
order by request_id desc
limit @row_limit;
