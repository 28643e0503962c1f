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
        (case when @by_key::boolean then key_id else '00000000-0000-0000-0000-000000000000' end)::uuid as key_id,
        (case when @by_model::boolean then model else '' end)::text as model,
        sum(requests)::bigint as requests, sum(estimated)::bigint as estimated, sum(client_gone)::bigint as client_gone, sum(input)::bigint as input, sum(cached_input)::bigint as cached_input,
        sum(cache_write)::bigint as cache_write, sum(output)::bigint as output, sum(reasoning)::bigint as reasoning, sum(audio_in)::bigint as audio_in,
        sum(audio_out)::bigint as audio_out, sum(image_in)::bigint as image_in, sum(image_out)::bigint as image_out, sum(images)::bigint as images,
        sum(seconds)::bigint as seconds, sum(server_tool_requests)::bigint as server_tool_requests, sum(cost)::bigint as cost
    from usage_daily d
    where used_on >= @from_day::date and used_on < @to_day::date and (@of_model::text = '' or d.model = @of_model)
    group by 1, 2, 3, 4
) as t
where (t.day, t.account_id, t.key_id, t.model) > (@after_day::date, @after_account::uuid, @after_key::uuid, @after_model::text) or @first_page::boolean
order by t.day, t.account_id, t.key_id, t.model
limit @row_limit;

-- name: UsageTotals :many
-- Totals that are not by day: of the whole weeks in a period, and of the days before and after them.
select '0001-01-01'::date as day, t.* from (
    select (case when @by_account::boolean then account_id else '00000000-0000-0000-0000-000000000000' end)::uuid as account_id,
        (case when @by_key::boolean then key_id else '00000000-0000-0000-0000-000000000000' end)::uuid as key_id,
        (case when @by_model::boolean then model else '' end)::text as model,
        bigint_sum(requests)::bigint as requests, bigint_sum(estimated)::bigint as estimated, bigint_sum(client_gone)::bigint as client_gone, bigint_sum(input)::bigint as input, bigint_sum(cached_input)::bigint as cached_input,
        bigint_sum(cache_write)::bigint as cache_write, bigint_sum(output)::bigint as output, bigint_sum(reasoning)::bigint as reasoning, bigint_sum(audio_in)::bigint as audio_in,
        bigint_sum(audio_out)::bigint as audio_out, bigint_sum(image_in)::bigint as image_in, bigint_sum(image_out)::bigint as image_out, bigint_sum(images)::bigint as images,
        bigint_sum(seconds)::bigint as seconds, bigint_sum(server_tool_requests)::bigint as server_tool_requests, bigint_sum(cost)::bigint as cost
    from (
        select account_id, key_id, model, requests, estimated, client_gone, input, cached_input, cache_write, output, reasoning, audio_in, audio_out, image_in, image_out, images, seconds, server_tool_requests, cost
        from usage_weekly
        where week >= @first_week::date and week < @end_of_weeks::date
        union all
        select account_id, key_id, model, requests, estimated, client_gone, input, cached_input, cache_write, output, reasoning, audio_in, audio_out, image_in, image_out, images, seconds, server_tool_requests, cost
        from usage_daily
        where used_on >= @from_day::date and used_on < @first_week
        union all
        select account_id, key_id, model, requests, estimated, client_gone, input, cached_input, cache_write, output, reasoning, audio_in, audio_out, image_in, image_out, images, seconds, server_tool_requests, cost
        from usage_daily
        where used_on >= @end_of_weeks and used_on < @to_day::date
    ) as d
    where @of_model::text = '' or d.model = @of_model
    group by 1, 2, 3
) as t
where (t.account_id, t.key_id, t.model) > (@after_account::uuid, @after_key::uuid, @after_model::text) or @first_page::boolean
order by t.account_id, t.key_id, t.model
limit @row_limit;

-- name: ModelUsageTotals :many
-- Totals over all accounts and keys.
select * from (
    select (case when @by_day::boolean then used_on else '0001-01-01' end)::date as day,
        '00000000-0000-0000-0000-000000000000'::uuid as account_id, '00000000-0000-0000-0000-000000000000'::uuid as key_id,
        (case when @by_model::boolean then model else '' end)::text as model,
        sum(requests)::bigint as requests, sum(estimated)::bigint as estimated, sum(client_gone)::bigint as client_gone, sum(input)::bigint as input, sum(cached_input)::bigint as cached_input,
        sum(cache_write)::bigint as cache_write, sum(output)::bigint as output, sum(reasoning)::bigint as reasoning, sum(audio_in)::bigint as audio_in,
        sum(audio_out)::bigint as audio_out, sum(image_in)::bigint as image_in, sum(image_out)::bigint as image_out, sum(images)::bigint as images,
        sum(seconds)::bigint as seconds, sum(server_tool_requests)::bigint as server_tool_requests, sum(cost)::bigint as cost
    from usage_daily_models d
    where used_on >= @from_day::date and used_on < @to_day::date and (@of_model::text = '' or d.model = @of_model)
    group by 1, 4
) as t
where (t.day, t.model) > (@after_day::date, @after_model::text) or @first_page::boolean
order by t.day, t.model
limit @row_limit;

-- name: AccountUsageTotals :many
-- Totals of one account, by the day of the booking or of the request.
select * from (
    select (case when @by_day::boolean then (case when @booked::boolean then booked_on else used_on end) else '0001-01-01' end)::date as day,
        (case when @by_account::boolean then account_id else '00000000-0000-0000-0000-000000000000' end)::uuid as account_id,
        (case when @by_key::boolean then key_id else '00000000-0000-0000-0000-000000000000' end)::uuid as key_id,
        (case when @by_model::boolean then model else '' end)::text as model,
        sum(requests)::bigint as requests, sum(estimated)::bigint as estimated, sum(client_gone)::bigint as client_gone, sum(input)::bigint as input, sum(cached_input)::bigint as cached_input,
        sum(cache_write)::bigint as cache_write, sum(output)::bigint as output, sum(reasoning)::bigint as reasoning, sum(audio_in)::bigint as audio_in,
        sum(audio_out)::bigint as audio_out, sum(image_in)::bigint as image_in, sum(image_out)::bigint as image_out, sum(images)::bigint as images,
        sum(seconds)::bigint as seconds, sum(server_tool_requests)::bigint as server_tool_requests, sum(cost)::bigint as cost
    from usage_daily d
    where d.account_id = @of_account and (@of_model::text = '' or d.model = @of_model)
        and (@any_key::boolean or d.key_id = @of_key)
        and case when @booked::boolean then booked_on else used_on end >= @from_day::date
        and case when @booked::boolean then booked_on else used_on end < @to_day::date
    group by 1, 2, 3, 4
) as t
where (t.day, t.account_id, t.key_id, t.model) > (@after_day::date, @after_account::uuid, @after_key::uuid, @after_model::text) or @first_page::boolean
order by t.day, t.account_id, t.key_id, t.model
limit @row_limit;

-- name: AccountOfKey :one
select account_id from api_keys where id = @id;

-- name: OldestTransaction :one
select oldest_transaction()::timestamptz as began;

-- name: OpeningBalance :one
-- The balance of an account at the beginning of a day.
select (
    coalesce((select sum(e.amount)
        from ledger_entries e
        join ledger_transactions t on t.id = e.transaction_id
        where e.account_id = @account_id::uuid and e.kind <> 'usage' and t.created_at < @from_moment), 0)
    - coalesce((select sum(d.cost) from usage_daily d where d.account_id = @account_id::uuid and d.booked_on < @from_day::date), 0)
)::bigint as balance;

-- name: StatementTransactions :many
-- Top-ups, refunds and corrections of an account in a period, oldest first.
select t.*, e.account_id::uuid as account_id, e.amount
from ledger_entries e
join ledger_transactions t on t.id = e.transaction_id
where e.account_id = @account_id::uuid and e.kind <> 'usage'
    and t.created_at >= @from_moment and t.created_at < @to_moment
order by t.created_at, t.id
limit @row_limit;
