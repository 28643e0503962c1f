-- Totals of usage, from the roll-ups. A column that is not grouped by has the same
-- value in all rows, so the same ORDER BY is correct for every grouping. All queries
-- have the same columns, so one function reads their rows.

-- name: UsedDays :one
-- The first and the last day with usage in a period; null if there is none.
select min(used_on)::date as first_day, max(used_on)::date as last_day
from usage_daily
where used_on >= @from_day::date and used_on < @to_day::date;

-- name: UsageTotalsByDay :many
select * from (
    select used_on as day,
        (case when @by_account::boolean then account_id else '00000000-0000-0000-0000-000000000000' end)::uuid as account_id,
        (case when @by_project::boolean then project_id else '00000000-0000-0000-0000-000000000000' end)::uuid as project_id,
        (case when @by_key::boolean then key_id else '00000000-0000-0000-0000-000000000000' end)::uuid as key_id,
        (case when @by_model::boolean then model else '' end)::text as model,
        (case when @by_tier::boolean then service_tier else '' end)::text as service_tier,
        sum(requests)::bigint as requests, sum(estimated)::bigint as estimated, sum(client_gone)::bigint as client_gone, sum(input)::bigint as input, sum(cached_input)::bigint as cached_input,
        sum(cache_write)::bigint as cache_write, sum(output)::bigint as output, sum(reasoning)::bigint as reasoning, sum(audio_in)::bigint as audio_in,
        sum(audio_out)::bigint as audio_out, sum(image_in)::bigint as image_in, sum(image_out)::bigint as image_out, sum(images)::bigint as images,
        sum(seconds)::bigint as seconds, sum(server_tool_requests)::bigint as server_tool_requests, sum(cost)::bigint as cost
    from usage_daily d
    where used_on >= @from_day::date and used_on < @to_day::date and (@of_model::text = '' or d.model = @of_model)
    group by 1, 2, 3, 4, 5, 6
) as t
where (t.day, t.account_id, t.project_id, t.key_id, t.model, t.service_tier) > (@after_day::date, @after_account::uuid, @after_project::uuid, @after_key::uuid, @after_model::text, @after_tier::text) or @first_page::boolean
order by t.day, t.account_id, t.project_id, t.key_id, t.model, t.service_tier
limit @row_limit;

-- name: UsageTotals :many
-- Totals that are not by day: of the whole weeks in a period, and of the days before and after them.
select '0001-01-01'::date as day, t.* from (
    select (case when @by_account::boolean then account_id else '00000000-0000-0000-0000-000000000000' end)::uuid as account_id,
        (case when @by_project::boolean then project_id else '00000000-0000-0000-0000-000000000000' end)::uuid as project_id,
        (case when @by_key::boolean then key_id else '00000000-0000-0000-0000-000000000000' end)::uuid as key_id,
        (case when @by_model::boolean then model else '' end)::text as model,
        (case when @by_tier::boolean then service_tier else '' end)::text as service_tier,
        bigint_sum(requests)::bigint as requests, bigint_sum(estimated)::bigint as estimated, bigint_sum(client_gone)::bigint as client_gone, bigint_sum(input)::bigint as input, bigint_sum(cached_input)::bigint as cached_input,
        bigint_sum(cache_write)::bigint as cache_write, bigint_sum(output)::bigint as output, bigint_sum(reasoning)::bigint as reasoning, bigint_sum(audio_in)::bigint as audio_in,
        bigint_sum(audio_out)::bigint as audio_out, bigint_sum(image_in)::bigint as image_in, bigint_sum(image_out)::bigint as image_out, bigint_sum(images)::bigint as images,
        bigint_sum(seconds)::bigint as seconds, bigint_sum(server_tool_requests)::bigint as server_tool_requests, bigint_sum(cost)::bigint as cost
    from (
        select account_id, project_id, key_id, model, service_tier, requests, estimated, client_gone, input, cached_input, cache_write, output, reasoning, audio_in, audio_out, image_in, image_out, images, seconds, server_tool_requests, cost
        from usage_weekly
        where week >= @first_week::date and week < @end_of_weeks::date
        union all
        select account_id, project_id, key_id, model, service_tier, requests, estimated, client_gone, input, cached_input, cache_write, output, reasoning, audio_in, audio_out, image_in, image_out, images, seconds, server_tool_requests, cost
        from usage_daily
        where used_on >= @from_day::date and used_on < @first_week
        union all
        select account_id, project_id, key_id, model, service_tier, requests, estimated, client_gone, input, cached_input, cache_write, output, reasoning, audio_in, audio_out, image_in, image_out, images, seconds, server_tool_requests, cost
        from usage_daily
        where used_on >= @end_of_weeks and used_on < @to_day::date
    ) as d
    where @of_model::text = '' or d.model = @of_model
    group by 1, 2, 3, 4, 5
) as t
where (t.account_id, t.project_id, t.key_id, t.model, t.service_tier) > (@after_account::uuid, @after_project::uuid, @after_key::uuid, @after_model::text, @after_tier::text) or @first_page::boolean
order by t.account_id, t.project_id, t.key_id, t.model, t.service_tier
limit @row_limit;

-- name: ModelUsageTotals :many
-- Totals over all accounts and keys.
select * from (
    select (case when @by_day::boolean then used_on else '0001-01-01' end)::date as day,
        '00000000-0000-0000-0000-000000000000'::uuid as account_id, '00000000-0000-0000-0000-000000000000'::uuid as project_id,
        '00000000-0000-0000-0000-000000000000'::uuid as key_id,
        (case when @by_model::boolean then model else '' end)::text as model,
        (case when @by_tier::boolean then service_tier else '' end)::text as service_tier,
        sum(requests)::bigint as requests, sum(estimated)::bigint as estimated, sum(client_gone)::bigint as client_gone, sum(input)::bigint as input, sum(cached_input)::bigint as cached_input,
        sum(cache_write)::bigint as cache_write, sum(output)::bigint as output, sum(reasoning)::bigint as reasoning, sum(audio_in)::bigint as audio_in,
        sum(audio_out)::bigint as audio_out, sum(image_in)::bigint as image_in, sum(image_out)::bigint as image_out, sum(images)::bigint as images,
        sum(seconds)::bigint as seconds, sum(server_tool_requests)::bigint as server_tool_requests, sum(cost)::bigint as cost
    from usage_daily_models d
    where used_on >= @from_day::date and used_on < @to_day::date and (@of_model::text = '' or d.model = @of_model)
    group by 1, 5, 6
) as t
where (t.day, t.model, t.service_tier) > (@after_day::date, @after_model::text, @after_tier::text) or @first_page::boolean
order by t.day, t.model, t.service_tier
limit @row_limit;

-- name: AccountUsageTotals :many
-- Totals of one account, by the day of the booking or of the request.
select * from (
    select (case when @by_day::boolean then (case when @booked::boolean then booked_on else used_on end) else '0001-01-01' end)::date as day,
        (case when @by_account::boolean then account_id else '00000000-0000-0000-0000-000000000000' end)::uuid as account_id,
        (case when @by_project::boolean then project_id else '00000000-0000-0000-0000-000000000000' end)::uuid as project_id,
        (case when @by_key::boolean then key_id else '00000000-0000-0000-0000-000000000000' end)::uuid as key_id,
        (case when @by_model::boolean then model else '' end)::text as model,
        (case when @by_tier::boolean then service_tier else '' end)::text as service_tier,
        sum(requests)::bigint as requests, sum(estimated)::bigint as estimated, sum(client_gone)::bigint as client_gone, sum(input)::bigint as input, sum(cached_input)::bigint as cached_input,
        sum(cache_write)::bigint as cache_write, sum(output)::bigint as output, sum(reasoning)::bigint as reasoning, sum(audio_in)::bigint as audio_in,
        sum(audio_out)::bigint as audio_out, sum(image_in)::bigint as image_in, sum(image_out)::bigint as image_out, sum(images)::bigint as images,
        sum(seconds)::bigint as seconds, sum(server_tool_requests)::bigint as server_tool_requests, sum(cost)::bigint as cost
    from usage_daily d
    where d.account_id = @of_account and (@of_model::text = '' or d.model = @of_model)
        and (@any_key::boolean or d.key_id = @of_key) and (@any_project::boolean or d.project_id = @of_project::uuid)
        and case when @booked::boolean then booked_on else used_on end >= @from_day::date
        and case when @booked::boolean then booked_on else used_on end < @to_day::date
    group by 1, 2, 3, 4, 5, 6
) as t
where (t.day, t.account_id, t.project_id, t.key_id, t.model, t.service_tier) > (@after_day::date, @after_account::uuid, @after_project::uuid, @after_key::uuid, @after_model::text, @after_tier::text) or @first_page::boolean
order by t.day, t.account_id, t.project_id, t.key_id, t.model, t.service_tier
limit @row_limit;

-- name: ZonedUsageTotals :many
-- Totals of one account by days of any time zone, which begin at the given times or ids of requests. They are read from the
-- records, because the roll-ups have days of UTC.
select * from (
    select (case when not @by_day::boolean then '0001-01-01'::date
            else (@first_day::date) - 1 + (case when @booked::boolean then width_bucket(r.settled_at, @moments::timestamptz[])
                else width_bucket(r.request_id, @ids::uuid[]) end) end)::date as day,
        (case when @by_account::boolean then r.account_id else '00000000-0000-0000-0000-000000000000' end)::uuid as account_id,
        coalesce(case when @by_project::boolean then r.project_id end, '00000000-0000-0000-0000-000000000000')::uuid as project_id,
        (case when @by_key::boolean then r.key_id else '00000000-0000-0000-0000-000000000000' end)::uuid as key_id,
        (case when @by_model::boolean then r.model else '' end)::text as model,
        coalesce(case when @by_tier::boolean then nullif(u.service_tier, 'default') end, '')::text as service_tier,
        count(*)::bigint as requests, count(*) filter (where r.estimated)::bigint as estimated,
        count(*) filter (where r.status = 'client_gone')::bigint as client_gone, coalesce(sum(u.input), 0)::bigint as input,
        coalesce(sum(u.cached_input), 0)::bigint as cached_input,
        (coalesce(sum(u.cache_write_5m), 0) + coalesce(sum(u.cache_write_1h), 0) + coalesce(sum(u.cache_write_30m), 0)
            + coalesce(sum(u.cache_write_12h), 0) + coalesce(sum(u.cache_write_other), 0))::bigint as cache_write,
        coalesce(sum(u.output), 0)::bigint as output, coalesce(sum(u.reasoning), 0)::bigint as reasoning, coalesce(sum(u.audio_in), 0)::bigint as audio_in,
        coalesce(sum(u.audio_out), 0)::bigint as audio_out, coalesce(sum(u.image_in), 0)::bigint as image_in, coalesce(sum(u.image_out), 0)::bigint as image_out,
        coalesce(sum(u.images), 0)::bigint as images, coalesce(sum(u.seconds), 0)::bigint as seconds,
        coalesce(sum(u.server_tool_requests), 0)::bigint as server_tool_requests, sum(r.cost)::bigint as cost
    from usage_records r
    cross join lateral json_to_record(r.usage) as u (input bigint, cached_input bigint, cache_write_5m bigint, cache_write_1h bigint,
        cache_write_30m bigint, cache_write_12h bigint, cache_write_other bigint, output bigint, reasoning bigint, audio_in bigint, audio_out bigint,
        image_in bigint, image_out bigint, images bigint, seconds bigint, server_tool_requests bigint, service_tier text)
    where r.account_id = @of_account and r.key_id in (select k.id from api_keys k where k.account_id = @of_account and (@any_key::boolean or k.id = @of_key))
        and (@of_model::text = '' or r.model = @of_model) and (@any_project::boolean or coalesce(r.project_id, '00000000-0000-0000-0000-000000000000') = @of_project::uuid)
        and case when @booked::boolean then r.settled_at >= @from_moment::timestamptz and r.settled_at < @to_moment::timestamptz
            else r.request_id >= @from_id::uuid and r.request_id < @to_id::uuid end
    group by 1, 2, 3, 4, 5, 6
) as t
where (t.day, t.project_id, t.key_id, t.model, t.service_tier) > (@after_day::date, @after_project::uuid, @after_key::uuid, @after_model::text, @after_tier::text) or @first_page::boolean
order by t.day, t.project_id, t.key_id, t.model, t.service_tier
limit @row_limit;

-- name: UsageDropped :one
-- Whether a month with a part of the period was dropped.
select exists (
    select from usage_months m
    where m.dropped_at is not null and m.month::timestamp at time zone 'utc' < @to_moment::timestamptz
        and (m.month + interval '1 month') at time zone 'utc' > @from_moment::timestamptz
);

-- name: Charged :one
-- What was charged to an account in a period, by the ledger.
select coalesce(-sum(e.amount), 0)::bigint as charged
from ledger_transactions t
join ledger_entries e on e.transaction_id = t.id
where t.created_at >= @from_moment and t.created_at < @to_moment and e.account_id = @account_id::uuid and e.kind = 'usage';

-- name: AccountOfProject :one
select account_id from projects where id = @id;

-- name: AccountOfKey :one
select account_id from api_keys where id = @id;

-- name: OldestTransaction :one
select oldest_transaction()::timestamptz as began;

-- name: OpeningBalance :one
-- The balance of an account at a moment, which is on the given day of UTC: the roll-ups have the charges before the day, and
-- the ledger those of its part before the moment.
select (
    coalesce((select sum(e.amount)
        from ledger_entries e
        join ledger_transactions t on t.id = e.transaction_id
        where e.account_id = @account_id::uuid and e.kind <> 'usage' and t.created_at < @from_moment::timestamptz), 0)
    - coalesce((select sum(d.cost) from usage_daily d where d.account_id = @account_id::uuid and d.booked_on < @from_day::date), 0)
    + coalesce((select sum(e.amount)
        from ledger_transactions t
        join ledger_entries e on e.transaction_id = t.id
        where t.created_at >= @day_began::timestamptz and t.created_at < @from_moment::timestamptz
            and e.account_id = @account_id::uuid and e.kind = 'usage'), 0)
)::bigint as balance;

-- name: StatementTransactions :many
-- Credits, refunds and corrections of an account in a period, oldest first.
select t.*, e.account_id::uuid as account_id, e.amount
from ledger_entries e
join ledger_transactions t on t.id = e.transaction_id
where e.account_id = @account_id::uuid and e.kind <> 'usage'
    and t.created_at >= @from_moment and t.created_at < @to_moment
order by t.created_at, t.id
limit @row_limit;
