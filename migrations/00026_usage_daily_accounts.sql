-- Totals by account and day, so that sums over all accounts need not read what each has used of every model by every key;
-- and one function that adds to all totals, for settlers that have added up a batch themselves.
--
-- A settler of this release writes records straight into their partitions, where no trigger fires, and calls the function. Whatever is
-- inserted into usage_records itself, as by settlers of the release before, is added up by the trigger.

-- +goose Up

-- Nothing is settled between the sums of what there is and the trigger that keeps them.
lock table usage_records in share row exclusive mode;

create table usage_daily_accounts (
    used_on date not null,
    account_id uuid not null,
    requests bigint not null,
    estimated bigint not null,
    input bigint not null,
    cached_input bigint not null,
    cache_write bigint not null,
    output bigint not null,
    reasoning bigint not null,
    audio_in bigint not null,
    audio_out bigint not null,
    image_in bigint not null,
    image_out bigint not null,
    images bigint not null,
    seconds bigint not null,
    server_tool_requests bigint not null,
    cost bigint not null,
    primary key (used_on, account_id)
) with (fillfactor = 70);

insert into usage_daily_accounts
select used_on, account_id, sum(requests), sum(estimated), sum(input), sum(cached_input), sum(cache_write), sum(output), sum(reasoning), sum(audio_in), sum(audio_out), sum(image_in), sum(image_out), sum(images), sum(seconds), sum(server_tool_requests), sum(cost)
from usage_daily
group by used_on, account_id;

-- +goose StatementBegin
-- Adds the sums of a batch to all totals. Each table's rows are locked in one order, and the tables in one order.
create function add_usage(batch usage_daily[]) returns void language plpgsql as $$
begin
    insert into usage_daily as d
    select account_id, booked_on, used_on, key_id, model, requests, estimated, input, cached_input, cache_write, output, reasoning, audio_in, audio_out, image_in, image_out, images, seconds, server_tool_requests, cost
    from unnest(batch)
    order by account_id, booked_on, used_on, key_id, model
    on conflict (account_id, booked_on, used_on, key_id, model) do update
    set requests = d.requests + excluded.requests, estimated = d.estimated + excluded.estimated, input = d.input + excluded.input,
        cached_input = d.cached_input + excluded.cached_input, cache_write = d.cache_write + excluded.cache_write,
        output = d.output + excluded.output, reasoning = d.reasoning + excluded.reasoning, audio_in = d.audio_in + excluded.audio_in,
        audio_out = d.audio_out + excluded.audio_out, image_in = d.image_in + excluded.image_in, image_out = d.image_out + excluded.image_out,
        images = d.images + excluded.images, seconds = d.seconds + excluded.seconds,
        server_tool_requests = d.server_tool_requests + excluded.server_tool_requests, cost = d.cost + excluded.cost;

    insert into usage_daily_accounts as a
    select used_on, account_id, sum(requests), sum(estimated), sum(input), sum(cached_input), sum(cache_write), sum(output), sum(reasoning), sum(audio_in), sum(audio_out), sum(image_in), sum(image_out), sum(images), sum(seconds), sum(server_tool_requests), sum(cost)
    from unnest(batch)
    group by used_on, account_id
    order by used_on, account_id
    on conflict (used_on, account_id) do update
    set requests = a.requests + excluded.requests, estimated = a.estimated + excluded.estimated, input = a.input + excluded.input,
        cached_input = a.cached_input + excluded.cached_input, cache_write = a.cache_write + excluded.cache_write,
        output = a.output + excluded.output, reasoning = a.reasoning + excluded.reasoning, audio_in = a.audio_in + excluded.audio_in,
        audio_out = a.audio_out + excluded.audio_out, image_in = a.image_in + excluded.image_in, image_out = a.image_out + excluded.image_out,
        images = a.images + excluded.images, seconds = a.seconds + excluded.seconds,
        server_tool_requests = a.server_tool_requests + excluded.server_tool_requests, cost = a.cost + excluded.cost;

    insert into usage_daily_models as m
    select used_on, model, pg_backend_pid() % 8, sum(requests), sum(estimated), sum(input), sum(cached_input), sum(cache_write), sum(output), sum(reasoning), sum(audio_in), sum(audio_out), sum(image_in), sum(image_out), sum(images), sum(seconds), sum(server_tool_requests), sum(cost)
    from unnest(batch)
    group by used_on, model
    order by used_on, model
    on conflict (used_on, model, slot) do update
    set requests = m.requests + excluded.requests, estimated = m.estimated + excluded.estimated, input = m.input + excluded.input,
        cached_input = m.cached_input + excluded.cached_input, cache_write = m.cache_write + excluded.cache_write,
        output = m.output + excluded.output, reasoning = m.reasoning + excluded.reasoning, audio_in = m.audio_in + excluded.audio_in,
        audio_out = m.audio_out + excluded.audio_out, image_in = m.image_in + excluded.image_in, image_out = m.image_out + excluded.image_out,
        images = m.images + excluded.images, seconds = m.seconds + excluded.seconds,
        server_tool_requests = m.server_tool_requests + excluded.server_tool_requests, cost = m.cost + excluded.cost;
end $$;
-- +goose StatementEnd

-- +goose StatementBegin
create or replace function roll_up_usage() returns trigger language plpgsql as $$
begin
    perform add_usage(array(
        select row(i.account_id, (now() at time zone 'utc')::date, uuid_day(i.request_id), i.key_id, i.model,
            count(*), count(*) filter (where i.estimated),
            coalesce(sum(u.input), 0), coalesce(sum(u.cached_input), 0),
            coalesce(sum(coalesce(u.cache_write_5m, 0) + coalesce(u.cache_write_1h, 0) + coalesce(u.cache_write_30m, 0)
                + coalesce(u.cache_write_12h, 0) + coalesce(u.cache_write_other, 0)), 0),
            coalesce(sum(u.output), 0), coalesce(sum(u.reasoning), 0), coalesce(sum(u.audio_in), 0), coalesce(sum(u.audio_out), 0),
            coalesce(sum(u.image_in), 0), coalesce(sum(u.image_out), 0), coalesce(sum(u.images), 0), coalesce(sum(u.seconds), 0),
            coalesce(sum(u.server_tool_requests), 0), sum(i.cost))::usage_daily
        from inserted i
        cross join lateral jsonb_to_record(i.usage) as u(
            input bigint, cached_input bigint, cache_write_5m bigint, cache_write_1h bigint, cache_write_30m bigint, cache_write_12h bigint,
            cache_write_other bigint, output bigint, reasoning bigint, audio_in bigint, audio_out bigint, image_in bigint, image_out bigint,
            images bigint, seconds bigint, server_tool_requests bigint)
        group by i.account_id, uuid_day(i.request_id), i.key_id, i.model));
    return null;
end $$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
create or replace function roll_up_usage() returns trigger language plpgsql as $$
begin
    with batch as materialized (
        select i.account_id, uuid_day(i.request_id) as used_on, i.key_id, i.model,
            count(*) as requests, count(*) filter (where i.estimated) as estimated,
            coalesce(sum(u.input), 0) as input, coalesce(sum(u.cached_input), 0) as cached_input,
            coalesce(sum(coalesce(u.cache_write_5m, 0) + coalesce(u.cache_write_1h, 0) + coalesce(u.cache_write_30m, 0)
                + coalesce(u.cache_write_12h, 0) + coalesce(u.cache_write_other, 0)), 0) as cache_write,
            coalesce(sum(u.output), 0) as output, coalesce(sum(u.reasoning), 0) as reasoning, coalesce(sum(u.audio_in), 0) as audio_in,
            coalesce(sum(u.audio_out), 0) as audio_out, coalesce(sum(u.image_in), 0) as image_in, coalesce(sum(u.image_out), 0) as image_out,
            coalesce(sum(u.images), 0) as images, coalesce(sum(u.seconds), 0) as seconds,
            coalesce(sum(u.server_tool_requests), 0) as server_tool_requests, sum(i.cost) as cost
        from inserted i
        cross join lateral jsonb_to_record(i.usage) as u(
            input bigint, cached_input bigint, cache_write_5m bigint, cache_write_1h bigint, cache_write_30m bigint, cache_write_12h bigint,
            cache_write_other bigint, output bigint, reasoning bigint, audio_in bigint, audio_out bigint, image_in bigint, image_out bigint,
            images bigint, seconds bigint, server_tool_requests bigint)
        group by 1, 2, 3, 4
    ), by_key as (
        insert into usage_daily as d
        select account_id, (now() at time zone 'utc')::date, used_on, key_id, model, requests, estimated, input, cached_input, cache_write, output, reasoning, audio_in, audio_out, image_in, image_out, images, seconds, server_tool_requests, cost
        from batch
        order by account_id, used_on, key_id, model -- rows are locked in one order everywhere
        on conflict (account_id, booked_on, used_on, key_id, model) do update
        set requests = d.requests + excluded.requests,
        estimated = d.estimated + excluded.estimated,
        input = d.input + excluded.input,
        cached_input = d.cached_input + excluded.cached_input,
        cache_write = d.cache_write + excluded.cache_write,
        output = d.output + excluded.output,
        reasoning = d.reasoning + excluded.reasoning,
        audio_in = d.audio_in + excluded.audio_in,
        audio_out = d.audio_out + excluded.audio_out,
        image_in = d.image_in + excluded.image_in,
        image_out = d.image_out + excluded.image_out,
        images = d.images + excluded.images,
        seconds = d.seconds + excluded.seconds,
        server_tool_requests = d.server_tool_requests + excluded.server_tool_requests,
        cost = d.cost + excluded.cost
    )
    insert into usage_daily_models as m
    select used_on, model, pg_backend_pid() % 8, sum(requests), sum(estimated), sum(input), sum(cached_input), sum(cache_write), sum(output), sum(reasoning), sum(audio_in), sum(audio_out), sum(image_in), sum(image_out), sum(images), sum(seconds), sum(server_tool_requests), sum(cost)
    from batch
    group by used_on, model
    order by used_on, model
    on conflict (used_on, model, slot) do update
    set requests = m.requests + excluded.requests,
        estimated = m.estimated + excluded.estimated,
        input = m.input + excluded.input,
        cached_input = m.cached_input + excluded.cached_input,
        cache_write = m.cache_write + excluded.cache_write,
        output = m.output + excluded.output,
        reasoning = m.reasoning + excluded.reasoning,
        audio_in = m.audio_in + excluded.audio_in,
        audio_out = m.audio_out + excluded.audio_out,
        image_in = m.image_in + excluded.image_in,
        image_out = m.image_out + excluded.image_out,
        images = m.images + excluded.images,
        seconds = m.seconds + excluded.seconds,
        server_tool_requests = m.server_tool_requests + excluded.server_tool_requests,
        cost = m.cost + excluded.cost;
    return null;
end $$;
-- +goose StatementEnd
drop function add_usage(usage_daily[]);
drop table usage_daily_accounts;
