-- name: Margin :many
-- Compares charges and costs of calls: of the last call of each request, and of those that did not serve it and have spent something.
-- The first row has the sums of all lines. It is planned for its values, so that a filter without a value is no condition.
with calls as (
    select case @by::text when 'account' then 'acc_' || replace(r.account_id::text, '-', '')
            when 'project' then coalesce('prj_' || replace(r.project_id::text, '-', ''), '')
            when 'key' then 'key_' || replace(r.key_id::text, '-', '') when 'model' then r.model when 'provider' then r.provider when 'route' then r.route
            when 'credential' then r.credential
            else ((@first_day::date) - 1 + width_bucket(r.request_id, @ids::uuid[]))::date::text end as name,
        case @by when 'credential' then r.provider else '' end as provider,
        1 as requests, r.cost as charged, r.provider_cost
    from usage_records r
    where r.request_id >= @floor::uuid and r.request_id < @ceiling::uuid
        and (sqlc.narg('account_id')::uuid is null or r.account_id = sqlc.narg('account_id'))
        and (sqlc.narg('project_id')::uuid is null or r.project_id = sqlc.narg('project_id') or sqlc.narg('project_id') = 'ffffffff-ffff-ffff-ffff-ffffffffffff' and r.project_id is null)
        and (sqlc.narg('key_id')::uuid is null or r.key_id = sqlc.narg('key_id'))
        and (@model::text = '' or r.model = @model)
        and (@provider::text = '' or r.provider = @provider)
        and (@route::text = '' or r.route = @route)
        and (@credential::text = '' or r.credential = @credential)
    union all
    select case @by::text when 'account' then 'acc_' || replace(r.account_id::text, '-', '')
            when 'project' then coalesce('prj_' || replace(r.project_id::text, '-', ''), '')
            when 'key' then 'key_' || replace(r.key_id::text, '-', '') when 'model' then r.model when 'provider' then coalesce(a ->> 'provider', '')
            when 'route' then a ->> 'route' when 'credential' then coalesce(a ->> 'credential_name', '')
            else ((@first_day::date) - 1 + width_bucket(r.request_id, @ids::uuid[]))::date::text end,
        case @by when 'credential' then coalesce(a ->> 'provider', '') else '' end,
        0, 0::bigint, (a ->> 'provider_cost')::bigint
    from usage_records r
    cross join lateral jsonb_array_elements(r.attempts) as a
    where r.attempts is not null and a -> 'usage' is not null
        and r.request_id >= @floor::uuid and r.request_id < @ceiling::uuid
        and (sqlc.narg('account_id')::uuid is null or r.account_id = sqlc.narg('account_id'))
        and (sqlc.narg('project_id')::uuid is null or r.project_id = sqlc.narg('project_id') or sqlc.narg('project_id') = 'ffffffff-ffff-ffff-ffff-ffffffffffff' and r.project_id is null)
        and (sqlc.narg('key_id')::uuid is null or r.key_id = sqlc.narg('key_id'))
        and (@model::text = '' or r.model = @model)
        and (@provider::text = '' or a ->> 'provider' = @provider)
        and (@route::text = '' or a ->> 'route' = @route)
        and (@credential::text = '' or a ->> 'credential_name' = @credential)
), lines as materialized (
    select name collate "C" as name, provider collate "C" as provider, sum(requests)::bigint as requests, coalesce(sum(charged), 0)::bigint as charged,
        coalesce(sum(provider_cost), 0)::bigint as provider_cost,
        coalesce(sum(provider_cost) filter (where charged = 0), 0)::bigint as loss,
        count(*) filter (where provider_cost is null) as unknown,
        coalesce(sum(charged) filter (where provider_cost is null), 0)::bigint as unknown_charged
    from calls group by 1, 2
), page as (
    select * from lines
    where @first_page::boolean or (charged - unknown_charged - provider_cost, provider, name)
        > (@after_margin::bigint, @after_provider::text, @after_name::text)
    order by charged - unknown_charged - provider_cost, provider, name
    limit @row_limit
)
select true as is_total, ''::text as name, ''::text as provider, ''::text as label, ''::text as route_model, ''::text as route_provider, coalesce(sum(requests), 0)::bigint as requests,
    coalesce(sum(charged), 0)::bigint as charged, coalesce(sum(provider_cost), 0)::bigint as provider_cost,
    coalesce(sum(loss), 0)::bigint as loss, coalesce(sum(unknown), 0)::bigint as unknown,
    coalesce(sum(unknown_charged), 0)::bigint as unknown_charged
from lines
union all
select false, page.name::text, page.provider::text,
    coalesce(case @by
        when 'account' then (select a.name from accounts a where a.id = substring(page.name from 5)::uuid)
        when 'project' then (select j.name from projects j where j.id = nullif(substring(page.name from 5), '')::uuid)
        when 'key' then (select k.name from api_keys k where k.id = substring(page.name from 5)::uuid)
        when 'model' then (select coalesce(nullif(m.spec ->> 'display_name', ''), m.id) from models m where m.id = page.name and m.deleted_at is null)
        when 'route' then r.model_id || ', ' || v.name
        when 'credential' then nullif(page.name, '') || ', ' || v.name
        when 'provider' then v.name end, '')::text,
    coalesce(r.model_id, '')::text, coalesce(r.provider_id, '')::text,
    page.requests, page.charged, page.provider_cost, page.loss, page.unknown::bigint, page.unknown_charged
from page
left join routes r on @by = 'route' and r.id = page.name
left join providers v on v.id = case @by when 'route' then r.provider_id when 'credential' then page.provider when 'provider' then page.name end;
