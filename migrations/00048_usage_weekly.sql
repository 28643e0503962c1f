-- Totals by week, so that sums over a long time need not read what every key has used of every model on each day. They serve what
-- usage_daily_accounts was for, too: nothing keeps or reads that any more. No release has used it, and the one after this can drop it.

-- +goose Up

-- Nothing is settled between the sums of what there is and the function that keeps them: every settler writes records, here or in
-- their partitions, which are locked as well, before it adds them up.
lock table usage_records in share row exclusive mode;

create table usage_weekly (
    -- The Monday that the week of the requests begins with.
    week date not null,
    account_id uuid not null,
    key_id uuid not null,
    model text not null,
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
    primary key (week, account_id, key_id, model)
) with (fillfactor = 70);

insert into usage_weekly
select used_on - (extract(isodow from used_on)::integer - 1), account_id, key_id, model, sum(requests), sum(estimated), sum(input), sum(cached_input), sum(cache_write), sum(output), sum(reasoning), sum(audio_in), sum(audio_out), sum(image_in), sum(image_out), sum(images), sum(seconds), sum(server_tool_requests), sum(cost)
from usage_daily
group by 1, 2, 3, 4;

-- Totals of one model by day. Not concurrently: nothing is settled meanwhile in any case, and all of the table was just read.
-- squawk-ignore require-concurrent-index-creation
create index usage_daily_model_idx on usage_daily (model, used_on);

-- Adds up numbers as what they are: exact, an error where the sum is out of range, and nothing numeric on the way, which takes longer
-- than all the rest of a sum over many rows. It is for one process: with many groups, the sums of parallel workers cost more to pass on
-- than they save.
create aggregate plain_sum(bigint) (sfunc = int8pl, stype = bigint);

-- +goose StatementBegin
-- Adds the sums of a batch to all totals. Each table's rows are locked in one order, and the tables in one order.
create or replace function add_usage(batch usage_daily[]) returns void language plpgsql as $$
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

    insert into usage_weekly as w
    select used_on - (extract(isodow from used_on)::integer - 1), account_id, key_id, model, sum(requests), sum(estimated), sum(input), sum(cached_input), sum(cache_write), sum(output), sum(reasoning), sum(audio_in), sum(audio_out), sum(image_in), sum(image_out), sum(images), sum(seconds), sum(server_tool_requests), sum(cost)
    from unnest(batch)
    group by 1, 2, 3, 4
    order by 1, 2, 3, 4
    on conflict (week, account_id, key_id, model) do update
    set requests = w.requests + excluded.requests, estimated = w.estimated + excluded.estimated, input = w.input + excluded.input,
        cached_input = w.cached_input + excluded.cached_input, cache_write = w.cache_write + excluded.cache_write,
        output = w.output + excluded.output, reasoning = w.reasoning + excluded.reasoning, audio_in = w.audio_in + excluded.audio_in,
        audio_out = w.audio_out + excluded.audio_out, image_in = w.image_in + excluded.image_in, image_out = w.image_out + excluded.image_out,
        images = w.images + excluded.images, seconds = w.seconds + excluded.seconds,
        server_tool_requests = w.server_tool_requests + excluded.server_tool_requests, cost = w.cost + excluded.cost;

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

-- +goose Down
lock table usage_records in share row exclusive mode;
-- +goose StatementBegin
create or replace function add_usage(batch usage_daily[]) returns void language plpgsql as $$
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
drop index usage_daily_model_idx;
drop aggregate plain_sum(bigint);
drop table usage_weekly;
-- Made anew from what was kept meanwhile.
truncate usage_daily_accounts;
insert into usage_daily_accounts
select used_on, account_id, sum(requests), sum(estimated), sum(input), sum(cached_input), sum(cache_write), sum(output), sum(reasoning), sum(audio_in), sum(audio_out), sum(image_in), sum(image_out), sum(images), sum(seconds), sum(server_tool_requests), sum(cost)
from usage_daily
group by used_on, account_id;
