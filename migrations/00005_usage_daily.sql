-- Totals of usage that outlive the records, and price multipliers of accounts.
--
-- usage_daily is kept by a trigger, in the transaction that writes the records:
-- settlers of this release and of the one before keep it alike, and a record
-- that is delivered twice counts once, since only rows that were inserted count.

-- +goose Up

---- price multipliers, in parts per million of the list price

alter table accounts
    add column price_multiplier bigint not null default 1000000
        constraint accounts_price_multiplier_range check (price_multiplier between 1 and 100000000),
    -- what is paid for single models instead, by model
    add column model_multipliers jsonb not null default '{}';

alter table usage_records
    add column price_multiplier bigint not null default 1000000;

---- totals by day

create table usage_daily (
    account_id uuid not null,
    -- The UTC day of the ledger transaction, which statements go by, and that of the request, which totals and partitions go by.
    booked_on date not null,
    used_on date not null,
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
    primary key (account_id, booked_on, used_on, key_id, model)
) with (fillfactor = 70);
create index usage_daily_used_idx on usage_daily (used_on);

-- +goose StatementBegin
-- The UTC day that is in a UUID of version 7.
create function uuid_day(id uuid) returns date language sql immutable parallel safe as $$
    select (timestamp 'epoch' + (('x0000' || substr(id::text, 1, 8) || substr(id::text, 10, 4))::bit(64)::bigint / 1000) * interval '1 second')::date
$$;
-- +goose StatementEnd

-- A ledger transaction is booked at the start of the transaction that writes it, so that the records of a batch and its
-- entries are of one day.
alter table ledger_transactions alter column created_at set default now();

insert into usage_daily
select r.account_id, (coalesce(t.created_at, r.settled_at) at time zone 'utc')::date, uuid_day(r.request_id), r.key_id, r.model,
    count(*), count(*) filter (where r.estimated),
    coalesce(sum(u.input), 0), coalesce(sum(u.cached_input), 0),
    coalesce(sum(coalesce(u.cache_write_5m, 0) + coalesce(u.cache_write_1h, 0) + coalesce(u.cache_write_30m, 0) + coalesce(u.cache_write_12h, 0)
        + coalesce(u.cache_write_other, 0)), 0),
    coalesce(sum(u.output), 0), coalesce(sum(u.reasoning), 0), coalesce(sum(u.audio_in), 0), coalesce(sum(u.audio_out), 0),
    coalesce(sum(u.image_in), 0), coalesce(sum(u.image_out), 0), coalesce(sum(u.images), 0), coalesce(sum(u.seconds), 0),
    coalesce(sum(u.server_tool_requests), 0), sum(r.cost)
from usage_records r
left join ledger_transactions t on t.id = r.transaction_id
cross join lateral jsonb_to_record(r.usage) as u(
    input bigint, cached_input bigint, cache_write_5m bigint, cache_write_1h bigint, cache_write_30m bigint, cache_write_12h bigint,
    cache_write_other bigint, output bigint, reasoning bigint, audio_in bigint, audio_out bigint, image_in bigint, image_out bigint,
    images bigint, seconds bigint, server_tool_requests bigint)
group by 1, 2, 3, 4, 5;

-- +goose StatementBegin
create function roll_up_usage() returns trigger language plpgsql as $$
begin
    insert into usage_daily as d
    select i.account_id, (now() at time zone 'utc')::date, uuid_day(i.request_id), i.key_id, i.model,
        count(*), count(*) filter (where i.estimated),
        coalesce(sum(u.input), 0), coalesce(sum(u.cached_input), 0),
        coalesce(sum(coalesce(u.cache_write_5m, 0) + coalesce(u.cache_write_1h, 0) + coalesce(u.cache_write_30m, 0)
            + coalesce(u.cache_write_12h, 0) + coalesce(u.cache_write_other, 0)), 0),
        coalesce(sum(u.output), 0), coalesce(sum(u.reasoning), 0), coalesce(sum(u.audio_in), 0), coalesce(sum(u.audio_out), 0),
        coalesce(sum(u.image_in), 0), coalesce(sum(u.image_out), 0), coalesce(sum(u.images), 0), coalesce(sum(u.seconds), 0),
        coalesce(sum(u.server_tool_requests), 0), sum(i.cost)
    from inserted i
    cross join lateral jsonb_to_record(i.usage) as u(
        input bigint, cached_input bigint, cache_write_5m bigint, cache_write_1h bigint, cache_write_30m bigint, cache_write_12h bigint,
        cache_write_other bigint, output bigint, reasoning bigint, audio_in bigint, audio_out bigint, image_in bigint, image_out bigint,
        images bigint, seconds bigint, server_tool_requests bigint)
    group by 1, 2, 3, 4, 5
    order by 1, 2, 3, 4, 5 -- rows are locked in one order everywhere
    on conflict (account_id, booked_on, used_on, key_id, model) do update
    set requests = d.requests + excluded.requests, estimated = d.estimated + excluded.estimated, input = d.input + excluded.input,
        cached_input = d.cached_input + excluded.cached_input, cache_write = d.cache_write + excluded.cache_write,
        output = d.output + excluded.output, reasoning = d.reasoning + excluded.reasoning, audio_in = d.audio_in + excluded.audio_in,
        audio_out = d.audio_out + excluded.audio_out, image_in = d.image_in + excluded.image_in, image_out = d.image_out + excluded.image_out,
        images = d.images + excluded.images, seconds = d.seconds + excluded.seconds,
        server_tool_requests = d.server_tool_requests + excluded.server_tool_requests, cost = d.cost + excluded.cost;
    return null;
end $$;
-- +goose StatementEnd
create trigger usage_records_roll_up after insert on usage_records
    referencing new table as inserted for each statement execute function roll_up_usage();

---- reading by time, model and account

-- Not concurrently: a partitioned table's cannot be made so; the sums above have read all of it anyway.
-- squawk-ignore require-concurrent-index-creation
create index usage_records_model_idx on usage_records (model, request_id);
-- Not concurrently: one row for each batch of usage.
-- squawk-ignore require-concurrent-index-creation
create index ledger_transactions_time_idx on ledger_transactions (created_at, id);

-- The kind of an entry's transaction, so that an account's credits are found among its many charges; null in entries of
-- releases before this one.
alter table ledger_entries add column kind text;
-- Not concurrently: a few rows for each batch of usage, of which it takes few.
-- squawk-ignore require-concurrent-index-creation
create index ledger_entries_movements_idx on ledger_entries (account_id, transaction_id)
    where account_id is not null and kind is distinct from 'usage';

-- The request that a correction is about.
alter table ledger_transactions add column request_id uuid;
-- Not concurrently: of a column that is new and empty.
-- squawk-ignore require-concurrent-index-creation
create index ledger_transactions_request_idx on ledger_transactions (request_id) where request_id is not null;

-- +goose Down
drop index ledger_transactions_request_idx, ledger_entries_movements_idx, ledger_transactions_time_idx, usage_records_model_idx;
drop trigger usage_records_roll_up on usage_records;
drop function roll_up_usage();
drop function uuid_day(uuid);
drop table usage_daily;
alter table ledger_transactions alter column created_at set default clock_timestamp();
alter table ledger_transactions drop column request_id;
alter table ledger_entries drop column kind;
alter table usage_records drop column price_multiplier;
alter table accounts drop column price_multiplier, drop column model_multipliers;
