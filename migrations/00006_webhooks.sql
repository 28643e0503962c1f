-- Alarms on pools, and webhooks: what happened is written with its cause,
-- laid out for each endpoint afterwards, and delivered from here.

-- +goose Up

alter table pools
    -- of a balance: an account with less is low; null for no alarm
    add column alarm_at bigint check (alarm_at > 0),
    -- of a limit: the share that is spent when it is near, 0 for no alarm; of a balance: what new keys of the account get
    add column alarm_percent smallint not null default 80 check (alarm_percent between 0 and 100),
    -- which alarms have been raised and not fallen back: 1 low or near, 2 exhausted or reached
    add column alarmed smallint not null default 0;

create table webhook_endpoints (
    id uuid primary key,
    url text not null check (url <> ''),
    description text not null default '',
    -- none: every type
    event_types text[] not null default '{}',
    enabled boolean not null default true,
    -- why the control plane turned it off by itself; empty if it did not
    disabled_reason text not null default '',
    -- attempts that failed since the last success, when the first of them was, and until when no other is made
    failures integer not null default 0,
    failing_since timestamptz,
    rest_until timestamptz,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now()
);

create table webhook_secrets (
    id uuid primary key,
    endpoint_id uuid not null references webhook_endpoints (id) on delete cascade,
    sealed bytea not null,
    cipher_key_id text not null,
    created_at timestamptz not null default now(),
    -- a secret that was replaced signs beside the new one until then
    expires_at timestamptz
);
create index webhook_secrets_endpoint_idx on webhook_secrets (endpoint_id, id);

create table webhook_events (
    id uuid primary key,
    type text not null,
    -- no references: checking them would lock rows that changes of accounts and keys hold while they wait for pools
    account_id uuid,
    key_id uuid,
    -- what was known in the transaction of the cause
    facts jsonb not null,
    -- at most one event of this name; null for any number
    once text unique,
    -- the endpoint that a test event is for; null for all
    endpoint_id uuid references webhook_endpoints (id) on delete cascade,
    -- what is sent, the same at every attempt; null until the event is laid out
    body bytea,
    at timestamptz not null default clock_timestamp()
);
create index webhook_events_new_idx on webhook_events (id) where body is null;

create table webhook_deliveries (
    id uuid primary key,
    event_id uuid not null references webhook_events (id) on delete cascade,
    endpoint_id uuid not null references webhook_endpoints (id) on delete cascade,
    state text not null default 'pending' check (state in ('pending', 'delivered', 'failed')),
    -- attempts so far, and those since it was asked for the last time, which the pauses grow with
    attempts integer not null default 0,
    round integer not null default 0,
    next_attempt_at timestamptz not null default clock_timestamp(),
    -- who claims it has it until then; the number tells claims apart. One whose claimant died comes back by itself.
    claimed_until timestamptz,
    claim bigint not null default 0,
    created_at timestamptz not null default clock_timestamp(),
    ended_at timestamptz,
    unique (event_id, endpoint_id)
) with (fillfactor = 80);
create index webhook_deliveries_due_idx on webhook_deliveries (endpoint_id, next_attempt_at) where state = 'pending';
create index webhook_deliveries_claimed_idx on webhook_deliveries (endpoint_id) where claimed_until is not null;
create index webhook_deliveries_list_idx on webhook_deliveries (endpoint_id, id);

-- An id of version 7 made by the database: the time, then chance.
-- +goose StatementBegin
create function gen_delivery_id() returns uuid language sql volatile as $$
    select (lpad(to_hex((extract(epoch from clock_timestamp()) * 1000)::bigint), 12, '0') || '7' ||
        substring(replace(gen_random_uuid()::text, '-', '') from 14))::uuid
$$;
-- +goose StatementEnd

create table webhook_attempts (
    delivery_id uuid not null references webhook_deliveries (id) on delete cascade,
    n integer not null,
    at timestamptz not null,
    -- 0 if no answer came
    status integer not null,
    latency_ms bigint not null,
    -- the class of failure; empty for a success
    error text not null default '',
    -- a few printable characters of a refusal
    excerpt text not null default '',
    primary key (delivery_id, n)
);

-- +goose Down
drop table webhook_attempts, webhook_deliveries, webhook_events, webhook_secrets, webhook_endpoints;
drop function gen_delivery_id();
alter table pools drop column alarmed, drop column alarm_percent, drop column alarm_at;
