-- Money is bigint nano-units (1e-9 of the currency). Identifiers are UUIDs of
-- version 7; their text form with a prefix exists only outside the database.

-- +goose Up

-- One row that numbers every change of keys, accounts and catalog. Taking the
-- next revision locks it until commit, so revisions are in commit order.
create table meta (
    one boolean primary key default true check (one),
    rev bigint not null default 1,
    cluster_epoch bigint not null default 1,
    stream_incarnation uuid not null default gen_random_uuid()
);
insert into meta default values;

create table settings (
    name text primary key,
    value jsonb not null,
    updated_at timestamptz not null default now()
);

---- accounts and keys

create table accounts (
    id uuid primary key,
    external_id text unique check (external_id <> ''),
    name text not null,
    status text not null default 'active' check (status in ('active', 'suspended')),
    max_concurrent_requests integer not null check (max_concurrent_requests >= 0),
    rev bigint not null,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now()
);

create table api_keys (
    id uuid primary key,
    account_id uuid not null references accounts (id),
    external_id text,
    name text not null,
    lookup_hash bytea not null unique check (length(lookup_hash) = 32),
    -- the sealed text for "Show key", and the key it is sealed under; null for keys of which only the hash was imported
    ciphertext bytea,
    cipher_key_id text,
    -- the last characters, to tell keys apart in a list
    hint text not null default '',
    -- null: no spend limit
    spend_limit bigint check (spend_limit >= 0),
    revoked_at timestamptz,
    rev bigint not null,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    check ((ciphertext is null) = (cipher_key_id is null)),
    unique (account_id, external_id)
);
create index api_keys_account_idx on api_keys (account_id, id);

-- Changes of keys and accounts that proxies must apply, by revision.
create table key_changes (
    rev bigint primary key,
    prev bigint not null,
    kind text not null check (kind in ('key_revoked', 'key_updated', 'account_updated')),
    key_id uuid references api_keys (id),
    account_id uuid not null references accounts (id),
    at timestamptz not null default clock_timestamp()
);

-- +goose StatementBegin
create function forbid_unrevoke() returns trigger language plpgsql as $$
begin
    if old.revoked_at is not null and new.revoked_at is distinct from old.revoked_at then
        raise exception 'key % is revoked for ever', old.id using errcode = 'restrict_violation';
    end if;
    return new;
end $$;
-- +goose StatementEnd
create trigger api_keys_revoked_for_ever before update on api_keys
    for each row execute function forbid_unrevoke();

-- +goose StatementBegin
create function forbid_change() returns trigger language plpgsql as $$
begin
    raise exception '% is append-only', tg_table_name using errcode = 'restrict_violation';
end $$;
-- +goose StatementEnd

---- pools, sessions, leases (see the protocol notes in shared/lease)

create table pools (
    id bigint generated always as identity primary key,
    account_id uuid not null references accounts (id),
    -- 1 balance of the account, 2 spend limit of a key, 3 slots of the account
    kind smallint not null check (kind in (1, 2, 3)),
    key_id uuid references api_keys (id),
    -- an unlimited pool has total 0, refuses nothing and still counts what is settled
    unlimited boolean not null default false,
    total bigint not null default 0,
    free bigint not null default 0,
    settled bigint not null default 0,
    overrun bigint not null default 0,
    late bigint not null default 0,
    central boolean not null default true,
    gen bigint not null default 1,
    check ((kind = 2) = (key_id is not null)),
    check (not unlimited or kind = 2)
) with (fillfactor = 70);
create unique index pools_account_kind_idx on pools (account_id, kind) where key_id is null;
create unique index pools_key_idx on pools (key_id) where key_id is not null;

create table dataplane_sessions (
    id bigint generated always as identity primary key,
    name text not null,
    boot_id text not null,
    build text not null default '',
    -- 1 active, 2 fenced, 3 closed
    state smallint not null default 1 check (state in (1, 2, 3)),
    valid_until timestamptz not null,
    registered_at timestamptz not null default clock_timestamp(),
    renewed_at timestamptz not null default clock_timestamp(),
    applied_rev bigint not null,
    catalog_rev bigint not null default 0,
    capacity bigint not null default 0,
    running bigint not null default 0,
    spool_used bigint not null default 0,
    draining boolean not null default false,
    final_count bigint,
    -- the numbers of the events that are settled
    settled int8multirange not null default '{}'
) with (fillfactor = 50);
create index dataplane_sessions_open_idx on dataplane_sessions (state, valid_until) where state < 3;

create table leases (
    pool_id bigint not null references pools (id),
    session_id bigint not null references dataplane_sessions (id),
    g bigint not null default 0,
    r bigint not null default 0,
    c bigint not null default 0,
    recalled_gen bigint not null default 0,
    primary key (pool_id, session_id),
    check (g - r - c >= 0)
) with (fillfactor = 70);
create index leases_session_idx on leases (session_id);

create table lease_ops (
    session_id bigint not null references dataplane_sessions (id) on delete cascade,
    account_id uuid not null,
    op_no bigint not null,
    result bytea not null,
    primary key (session_id, account_id)
) with (fillfactor = 70);

---- ledger: double entry, append-only, every transaction sums to zero

create table ledger_transactions (
    id uuid primary key,
    kind text not null check (kind in ('credit', 'correction', 'usage')),
    -- what the transaction is for: unique per kind, so that nothing is booked twice
    reference text not null,
    reason text not null default '',
    actor text not null default '',
    created_at timestamptz not null default clock_timestamp(),
    unique (kind, reference)
);

create table ledger_entries (
    transaction_id uuid not null references ledger_transactions (id),
    line integer not null,
    -- 'customer' entries belong to an account; the others are the operator's own books
    book text not null check (book in ('customer', 'funding', 'adjustment', 'revenue')),
    account_id uuid references accounts (id),
    -- positive: in the book's favour
    amount bigint not null check (amount <> 0),
    primary key (transaction_id, line),
    check ((book = 'customer') = (account_id is not null))
);
create index ledger_entries_account_idx on ledger_entries (account_id, transaction_id) where account_id is not null;

-- +goose StatementBegin
create function ledger_sums_to_zero() returns trigger language plpgsql as $$
declare
    off uuid;
begin
    select e.transaction_id into off
    from ledger_entries e
    where e.transaction_id in (select distinct transaction_id from inserted)
    group by e.transaction_id
    having sum(e.amount) <> 0
    limit 1;
    if off is not null then
        raise exception 'ledger transaction % does not sum to zero', off using errcode = 'check_violation';
    end if;
    return null;
end $$;
-- +goose StatementEnd
-- All entries of a transaction are written by one statement, so the sum is checked once for it.
create trigger ledger_entries_balance after insert on ledger_entries
    referencing new table as inserted for each statement execute function ledger_sums_to_zero();
create trigger ledger_entries_append_only before update or delete on ledger_entries
    for each statement execute function forbid_change();
create trigger ledger_transactions_append_only before update or delete on ledger_transactions
    for each statement execute function forbid_change();

---- usage

create table usage_records (
    request_id uuid not null,
    session_id bigint not null,
    n bigint not null,
    account_id uuid not null,
    key_id uuid not null,
    model text not null,
    format text not null,
    provider text not null default '',
    route text not null default '',
    provider_request_id text not null default '',
    status text not null,
    http_status integer not null default 0,
    stream boolean not null default false,
    started_at timestamptz not null,
    finished_at timestamptz not null,
    first_byte_ms bigint not null default 0,
    usage jsonb not null,
    rule text not null,
    estimated boolean not null default false,
    price_version bigint not null,
    cost bigint not null check (cost >= 0),
    reserve bigint not null check (reserve >= 0),
    video_job text not null default '',
    fingerprint bytea not null,
    transaction_id uuid,
    settled_at timestamptz not null default clock_timestamp(),
    primary key (request_id)
) partition by range (request_id);
create index usage_records_account_idx on usage_records (account_id, request_id);
create index usage_records_key_idx on usage_records (key_id, request_id);
-- Each partition has the same trigger: a statement fires only those of the table that it names.
create trigger usage_records_append_only before update or delete on usage_records
    for each statement execute function forbid_change();

-- +goose StatementBegin
-- The lowest UUID of version 7 of a moment.
create function uuid_floor(moment timestamptz) returns uuid language sql immutable as $$
    select (lpad(to_hex((extract(epoch from moment) * 1000)::bigint), 12, '0') || '00000000000000000000')::uuid
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Creates the monthly partitions of usage_records that cover a span.
create function ensure_usage_partitions(from_moment timestamptz, to_moment timestamptz) returns integer language plpgsql as $$
declare
    month timestamptz := date_trunc('month', from_moment at time zone 'utc') at time zone 'utc';
    following timestamptz;
    name text;
    made integer := 0;
begin
    perform pg_advisory_xact_lock(7310002);
    while month <= to_moment loop
        following := ((month at time zone 'utc') + interval '1 month') at time zone 'utc';
        name := 'usage_records_' || to_char(month at time zone 'utc', 'YYYYMM');
        if to_regclass(name) is null then
            execute format('create table %I partition of usage_records for values from (%L) to (%L)',
                name, uuid_floor(month), uuid_floor(following));
            execute format('create trigger append_only before update or delete on %I for each statement execute function forbid_change()', name);
            made := made + 1;
        end if;
        month := following;
    end loop;
    return made;
end $$;
-- +goose StatementEnd
select ensure_usage_partitions(now() - interval '40 days', now() + interval '70 days');

-- +goose StatementBegin
-- What request ids can be stored: from usage_lowest() up to, but not including, usage_highest().
create function usage_lowest() returns uuid language sql stable as $$
    select min(substring(pg_get_expr(c.relpartbound, c.oid) from 'FROM \(''([0-9a-f-]+)''\)'))::uuid
    from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'usage_records'::regclass
$$;
-- +goose StatementEnd
-- +goose StatementBegin
create function usage_highest() returns uuid language sql stable as $$
    select max(substring(pg_get_expr(c.relpartbound, c.oid) from 'TO \(''([0-9a-f-]+)''\)'))::uuid
    from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'usage_records'::regclass
$$;
-- +goose StatementEnd

-- Events that cannot be settled, kept for a person to look at.
create table quarantine (
    id bigint generated always as identity primary key,
    session_id bigint not null default 0,
    n bigint not null default 0,
    request_id text not null default '',
    reason text not null,
    payload bytea not null,
    at timestamptz not null default clock_timestamp()
);
-- By a hash, since an index entry has no room for a whole event.
create unique index quarantine_once_idx on quarantine (session_id, n, sha256(payload));

---- catalog

create table providers (
    id text primary key,
    name text not null unique,
    -- everything but credentials, in the form of the catalog entry
    spec jsonb not null,
    rev bigint not null,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now()
);

create table provider_credentials (
    id text primary key,
    provider_id text not null references providers (id) on delete cascade,
    name text not null,
    sealed bytea not null,
    cipher_key_id text not null,
    enabled boolean not null default true,
    created_at timestamptz not null default now(),
    unique (provider_id, name)
);

create table models (
    id text primary key,
    type text not null check (type in ('text', 'image', 'video')),
    enabled boolean not null,
    public boolean not null,
    -- everything but prices and routes, in the form of the catalog entry
    spec jsonb not null,
    rev bigint not null,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    deleted_at timestamptz
);

create table model_prices (
    version bigint generated always as identity primary key,
    model_id text not null references models (id),
    sheet jsonb not null,
    effective_from timestamptz not null,
    created_at timestamptz not null default now()
);
create index model_prices_model_idx on model_prices (model_id, version);
create trigger model_prices_never_rewritten before update or delete on model_prices
    for each statement execute function forbid_change();

create table routes (
    id text primary key,
    model_id text not null references models (id),
    provider_id text not null references providers (id),
    spec jsonb not null,
    created_at timestamptz not null default now()
);
create index routes_model_idx on routes (model_id);

create table model_grants (
    account_id uuid not null references accounts (id),
    model_id text not null references models (id),
    created_at timestamptz not null default now(),
    primary key (account_id, model_id)
);

---- video jobs

create table video_jobs (
    id uuid primary key,
    account_id uuid not null references accounts (id),
    key_id uuid not null references api_keys (id),
    request_id uuid not null unique,
    status text not null check (status in ('queued', 'in_progress', 'completed', 'failed')),
    record jsonb not null,
    rev bigint not null default 1,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    ended_at timestamptz
);
create index video_jobs_account_idx on video_jobs (account_id, id);
create index video_jobs_open_idx on video_jobs (updated_at) where ended_at is null;

---- outbox: messages written with the change, published after it, in order

create table outbox (
    id bigint generated always as identity primary key,
    subject text not null,
    -- null deletes the catalog entry
    payload bytea,
    at timestamptz not null default clock_timestamp()
);

---- administration

create table admin_tokens (
    id uuid primary key,
    name text not null,
    token_hash bytea not null unique,
    scopes text[] not null check (scopes <@ array['cabinet', 'operator', 'read']),
    expires_at timestamptz,
    last_used_at timestamptz,
    revoked_at timestamptz,
    created_at timestamptz not null default now()
);

create table audit_log (
    id bigint generated always as identity primary key,
    at timestamptz not null default clock_timestamp(),
    actor text not null,
    action text not null,
    object text not null,
    before jsonb,
    after jsonb,
    request_id text not null default ''
);
create index audit_log_object_idx on audit_log (object, id);
create trigger audit_log_append_only before update or delete on audit_log
    for each statement execute function forbid_change();

create table idempotency_keys (
    actor text not null,
    key text not null,
    method text not null,
    path text not null,
    body_hash bytea not null,
    -- what the request makes gets this id, so that doing it again after a crash makes nothing twice
    operation_id uuid not null,
    -- null until the request has been answered; the body is sealed, since it can hold a secret
    status integer,
    content_type text,
    body bytea,
    cipher_key_id text,
    created_at timestamptz not null default now(),
    primary key (actor, key),
    check ((status is null) = (body is null) and (body is null) = (cipher_key_id is null))
);
create index idempotency_keys_age_idx on idempotency_keys (created_at);

-- +goose Down
drop table idempotency_keys, audit_log, admin_tokens, outbox, video_jobs, model_grants, routes, model_prices, models,
    provider_credentials, providers, quarantine, usage_records, ledger_entries, ledger_transactions, lease_ops, leases,
    dataplane_sessions, pools, key_changes, api_keys, accounts, settings, meta;
drop function usage_lowest(), usage_highest(), ledger_sums_to_zero(), forbid_change(), forbid_unrevoke(), uuid_floor(timestamptz), ensure_usage_partitions(timestamptz, timestamptz);
