-- The schema of the first release, by subject.
--
-- Money is bigint in nano-units (1e-9 of the currency). Identifiers are UUIDs of version 7; their text form with a
-- prefix exists only outside the database. "Revision" is the position in the order of configuration changes.

-- +goose Up

---- common

-- +goose StatementBegin
-- For tables whose rows are never changed or deleted.
create function reject_change() returns trigger language plpgsql as $$
begin
    raise exception '% is append-only', tg_table_name using errcode = 'restrict_violation';
end $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- The lowest UUID of version 7 of a time.
create function uuid_floor(moment timestamptz) returns uuid language sql immutable as $$
    select (lpad(to_hex((extract(epoch from moment) * 1000)::bigint), 12, '0') || '00000000000000000000')::uuid
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- The UTC day that is in a UUID of version 7.
create function uuid_day(id uuid) returns date language sql immutable parallel safe as $$
    select (timestamp 'epoch' + (('x0000' || substr(id::text, 1, 8) || substr(id::text, 10, 4))::bit(64)::bigint / 1000) * interval '1 second')::date
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- The time at which the oldest running transaction began. Rows have the time at which their transaction began, so no row
-- with an earlier time can appear any more.
create function oldest_transaction() returns timestamptz language sql volatile as $$
    select least(min(a.xact_start), clock_timestamp())
    from pg_stat_activity a
    where a.datname = current_database() and a.pid <> pg_backend_pid()
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- The time at which the oldest running transaction that has written something began; null if there is none.
create function oldest_writer() returns timestamptz language sql volatile as $$
    select min(a.xact_start) from pg_stat_activity a where a.datname = current_database() and a.backend_xid is not null
$$;
-- +goose StatementEnd

-- Sums bigint in bigint: the sum is exact, and a sum out of range is an error. The built-in sum computes in numeric, which
-- takes longer than the rest of a query over many rows. It has no combine function: with many groups, passing on the
-- sums of parallel workers costs more than it saves.
create aggregate bigint_sum(bigint) (sfunc = int8pl, stype = bigint);

-- +goose StatementBegin
-- How many whole hours a balance lasts at the rate of the last seven days of UTC, or of yesterday and today, whichever is
-- higher; null if nothing was charged.
create function hours_left(balance bigint, two_days bigint, seven_days bigint, moment timestamptz) returns bigint language sql immutable as $$
    select case
        when two_days <= 0 and seven_days <= 0 then null
        when balance <= 0 then 0
        else least(floor(balance / greatest(two_days / (24 + today.hours), seven_days / (144 + today.hours))), 1e12)::bigint
    end
    from (select extract(epoch from (moment at time zone 'utc')::time) / 3600 as hours) as today
$$;
-- +goose StatementEnd

---- the state of the cluster

-- One row. Taking the next revision locks it until commit, so revisions are in commit order.
create table cluster_state (
    one boolean primary key default true check (one),
    revision bigint not null default 1,
    -- the number of declared losses of commits; the time of the last one; the time from which usage is settled again after it
    cluster_epoch bigint not null default 1,
    lost_at timestamptz,
    usage_replay_from timestamptz,
    -- the last epoch whose recovery wait is over: until it is cluster_epoch, nothing is granted
    recovered_epoch bigint not null default 1,
    -- changes when the usage stream is created again
    stream_incarnation uuid not null default gen_random_uuid(),
    -- up to which revision the stream of changes has had every change for the window of the sessions
    streamed_revision bigint not null default 1
);
insert into cluster_state default values;

create table settings (
    name text primary key,
    value jsonb not null,
    updated_at timestamptz not null default now()
);

---- accounts and API keys

-- The parts of a text of three characters, by which an index finds a text within names. Postgres has an extension for that,
-- which not every managed Postgres allows.
-- +goose StatementBegin
create function trigrams(t text) returns text[] language sql immutable strict parallel safe as $$
    select coalesce(array_agg(distinct substr(t, i, 3)), '{}') from generate_series(1, length(t) - 2) as i
$$;
-- +goose StatementEnd

create table accounts (
    id uuid primary key,
    external_id text unique check (external_id <> ''),
    name text not null,
    status text not null default 'active' check (status in ('active', 'suspended')),
    max_concurrent_requests integer not null check (max_concurrent_requests >= 0),
    -- null: any number
    max_open_video_jobs integer check (max_open_video_jobs >= 0),
    -- in parts per million of the list price; a multiplier of a model replaces that of the account
    price_multiplier bigint not null default 1000000 constraint accounts_price_multiplier_range check (price_multiplier between 1 and 100000000),
    model_multipliers jsonb not null default '{}',
    -- answers say what they cost without being asked
    include_cost boolean not null default false,
    -- pairs of texts of the operator
    metadata jsonb not null default '{}',
    revision bigint not null,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now()
);

-- What was changed since a revision.
create index accounts_revision_idx on accounts (revision);
-- The beginnings of names and of external ids.
create index accounts_name_idx on accounts (lower(name) text_pattern_ops);
create index accounts_name_inside_idx on accounts using gin (trigrams(lower(name)));
create index accounts_external_id_idx on accounts (external_id text_pattern_ops) where external_id is not null;

-- Projects of accounts: keys that have limits in common, and whose usage is counted together.
create table projects (
    id uuid primary key,
    account_id uuid not null references accounts (id),
    external_id text,
    name text not null,
    description text not null default '',
    metadata jsonb not null default '{}',
    -- no key can be in it any more; its usage keeps its name
    deleted_at timestamptz,
    revision bigint not null,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    unique (account_id, external_id),
    -- what a key refers to, so that no key is in a project of another account
    unique (account_id, id)
);

create index projects_name_idx on projects (lower(name) text_pattern_ops);
create index projects_name_inside_idx on projects using gin (trigrams(lower(name)));
create index projects_external_id_idx on projects (external_id text_pattern_ops) where external_id is not null;

create table api_keys (
    id uuid primary key,
    account_id uuid not null references accounts (id),
    -- null: in no project
    project_id uuid,
    external_id text,
    name text not null,
    lookup_hash bytea not null unique check (length(lookup_hash) = 32),
    -- the pepper of lookup_hash; null if it is not known
    pepper_id text,
    -- the encrypted text, which can be shown again, and the id of the encryption key; null for hash-only keys
    ciphertext bytea,
    cipher_key_id text,
    -- the last characters, to distinguish keys in a list
    hint text not null default '',
    -- null: no spend limit
    spend_limit bigint check (spend_limit >= 0),
    description text not null default '',
    metadata jsonb not null default '{}',
    -- from when on the key does not work; null: never
    expires_at timestamptz,
    -- null: no limit beside that of the account
    max_concurrent_requests integer check (max_concurrent_requests >= 0),
    -- when the next event about the expiry is due; null if there is none
    expiry_event_at timestamptz,
    paused boolean not null default false,
    -- the models that the key may use, as ids or prefixes that end with *, and the networks that it may be used from; empty: all
    models jsonb not null default '[]',
    networks jsonb not null default '[]',
    -- of the last rotation: its id, its time, and until when the previous secret, with that hint, is valid; null if it is not
    rotation_id uuid,
    rotated_at timestamptz,
    previous_hint text not null default '',
    previous_until timestamptz,
    revoked_at timestamptz,
    revision bigint not null,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    check ((ciphertext is null) = (cipher_key_id is null)),
    unique (account_id, external_id),
    constraint api_keys_project_fkey foreign key (account_id, project_id) references projects (account_id, id)
);
create index api_keys_account_idx on api_keys (account_id, id);
create index api_keys_project_idx on api_keys (project_id, id) where project_id is not null;
create index api_keys_revision_idx on api_keys (revision);
-- Keys that may have no MAC under the peppers of a proxy.
create index api_keys_mac_idx on api_keys (pepper_id, (ciphertext is null)) where revoked_at is null;
create index api_keys_name_idx on api_keys (lower(name) text_pattern_ops);
create index api_keys_name_inside_idx on api_keys using gin (trigrams(lower(name)));
create index api_keys_external_id_idx on api_keys (external_id text_pattern_ops) where external_id is not null;
create index api_keys_expiry_event_idx on api_keys (expiry_event_at) where expiry_event_at is not null and revoked_at is null;
create index api_keys_hint_idx on api_keys (hint);
-- Keys that are encrypted directly under a master key, not under a data key.
create index api_keys_direct_idx on api_keys (id) where cipher_key_id not like 'dk\_%';

-- +goose StatementBegin
create function reject_unrevoke() returns trigger language plpgsql as $$
begin
    if old.revoked_at is not null and new.revoked_at is distinct from old.revoked_at then
        raise exception 'key % stays revoked', old.id using errcode = 'restrict_violation';
    end if;
    return new;
end $$;
-- +goose StatementEnd
create trigger api_keys_stay_revoked before update on api_keys
    for each row execute function reject_unrevoke();

-- Further hashes of keys: of the current secret under other peppers, and of secrets that a rotation has replaced. A hash is
-- never that of another key, and none is deleted.
create table key_hashes (
    hash bytea primary key check (length(hash) = 32),
    key_id uuid not null references api_keys (id),
    -- null if it is not known
    pepper_id text,
    -- the text of the secret was never known, so it may have no MAC
    hash_only boolean not null default false,
    -- of which secret: the previous one is valid until api_keys.previous_until
    secret text not null default 'current' check (secret in ('current', 'previous', 'ended')),
    revision bigint not null,
    created_at timestamptz not null default now()
);
create unique index key_hashes_pepper_idx on key_hashes (key_id, pepper_id) where secret = 'current';
create index key_hashes_key_idx on key_hashes (key_id, created_at, hash);
-- Secrets in an overlap, or that had one.
create index key_hashes_previous_idx on key_hashes (key_id) where secret = 'previous';
create index key_hashes_revision_idx on key_hashes (revision);

-- Changes of keys and accounts that proxies must apply, in the order of revisions.
create table key_changes (
    revision bigint primary key,
    previous_revision bigint not null,
    -- keys_added: hashes that a proxy did not find may exist now
    kind text not null check (kind in ('key_revoked', 'key_updated', 'account_updated', 'keys_added')),
    key_id uuid references api_keys (id),
    account_id uuid not null references accounts (id),
    -- A change of a key that has several hashes is pushed once for each: the hash, null for a change of an account.
    lookup_hash bytea,
    created_at timestamptz not null default clock_timestamp()
);

-- Revocations are kept for ever: what is old enough to be deleted is found without them.
create index key_changes_removable on key_changes (revision) where kind <> 'key_revoked';

---- limits of accounts, projects and keys (see shared/limit)

create table limits (
    -- the number in the ids of the pools of the windows: random, so that it is not given out again after a loss of commits
    number bigint primary key check (number > 0 and number < 1::bigint << 34),
    id uuid not null unique,
    account_id uuid not null references accounts (id),
    -- both null: of the account
    project_id uuid references projects (id),
    key_id uuid references api_keys (id),
    name text not null default '',
    amount bigint not null check (amount >= 0),
    -- the amount that holds instead until a time
    raised_to bigint,
    raised_until timestamptz,
    check ((raised_to is null) = (raised_until is null)),
    -- the window, as limit.Window has it
    period text not null check (period in ('forever', 'day', 'week', 'month', 'fixed', 'first_use')),
    time_zone text not null default '',
    length_seconds bigint not null default 0,
    anchor_unix bigint not null default 0,
    -- the models that the limit applies to, as ids or prefixes that end with *; empty: all
    models jsonb not null default '[]',
    -- requests do not count any more
    removed_at timestamptz,
    revision bigint not null,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    check (project_id is null or key_id is null)
);
create index limits_account_idx on limits (account_id, id);
create index limits_revision_idx on limits (revision);

---- pools, proxy sessions and leases (see shared/lease)

create table pools (
    id bigint generated always as identity primary key,
    account_id uuid not null references accounts (id),
    -- 1 balance of the account, 2 spend limit of a key or window of a limit, 3 slots of the account or of a key
    kind smallint not null check (kind in (1, 2, 3)),
    key_id uuid references api_keys (id),
    -- of a window: its limit, when it begins, and when it ends, null for never; its id is made of the limit and the number of the window
    limit_number bigint references limits (number),
    starts_at timestamptz,
    ends_at timestamptz,
    -- what was settled of a window before it was reset; total is higher by it
    forgiven bigint not null default 0,
    -- of a window: the part of total that is taken away at a time, before the window ends; the first transaction that locks it later does
    raised_by bigint not null default 0 check (raised_by >= 0),
    raised_until timestamptz,
    -- an unlimited pool has total 0 and refuses nothing; its settled amount is counted
    unlimited boolean not null default false,
    total bigint not null default 0,
    free bigint not null default 0,
    settled bigint not null default 0,
    overrun bigint not null default 0,
    late bigint not null default 0,
    central boolean not null default true,
    generation bigint not null default 1,
    -- of a balance: the highest that it was; an alert is only raised for a balance that was above
    peak bigint not null default 0,
    -- of a balance: the alert is raised below this amount; null for no alert
    low_balance_threshold bigint check (low_balance_threshold > 0),
    -- of a spend limit: the alert is raised when this share is spent, 0 for no alert; of a balance: the share for new keys of
    -- the account
    limit_alert_percent smallint not null default 80 check (limit_alert_percent between 0 and 100),
    -- bits of the alerts that are raised: 1 low balance or limit near, 2 balance exhausted or limit reached; of a window, for ever:
    -- 1, 2 and 4 if 50, 80 and 100 % of it were spent
    raised_alarms smallint not null default 0,
    -- of a balance: how much of the settled amount its credits were used for or that none covered, and the sum of what no
    -- credit has covered
    attributed bigint not null default 0,
    uncovered bigint not null default 0 check (uncovered >= 0),
    -- of a balance: what is held of expired credits (it is not in the total any more), and when the next credit expires.
    -- From then until the expiry is booked, nothing is granted or charged.
    expiring bigint not null default 0 check (expiring >= 0),
    next_expiry timestamptz,
    check (num_nonnulls(key_id, limit_number) = 1 or (kind <> 2 and num_nonnulls(key_id, limit_number) = 0)),
    check (kind <> 1 or key_id is null),
    check (kind = 2 or limit_number is null),
    check ((limit_number is not null) = (starts_at is not null)),
    check ((limit_number is not null) = (id >= 1::bigint << 58)),
    check (not unlimited or kind = 2),
    check (kind = 1 or (attributed = 0 and uncovered = 0 and expiring = 0 and next_expiry is null))
) with (fillfactor = 70);
create unique index pools_account_kind_idx on pools (account_id, kind) where kind <> 2 and key_id is null;
create index pools_limit_idx on pools (limit_number, id) where limit_number is not null;
create unique index pools_key_idx on pools (key_id, kind) where key_id is not null;
create index pools_next_expiry_idx on pools (next_expiry, account_id) where next_expiry is not null;
create index pools_expiring_idx on pools (account_id) where expiring > 0;

create table proxy_sessions (
    id bigint generated always as identity primary key,
    -- name, boot id and build of the proxy
    name text not null,
    boot_id text not null,
    build text not null default '',
    -- 1 active, 2 fenced, 3 closed
    state smallint not null default 1 check (state in (1, 2, 3)),
    valid_until timestamptz not null,
    registered_at timestamptz not null default clock_timestamp(),
    last_heartbeat_at timestamptz not null default clock_timestamp(),
    -- the proxy's report in its last heartbeat; refused credentials are objects with `credential` and `reason`
    applied_revision bigint not null,
    -- for how long the proxy admits after a beat in the stream of changes
    window_ms bigint not null check (window_ms > 0),
    -- the session is not extended any more, and is fenced when the stream of changes has confirmed that
    ending boolean not null default false,
    catalog_revision bigint not null default 0,
    spool_capacity bigint not null default 0,
    spool_used bigint not null default 0,
    running bigint not null default 0,
    -- how many requests have started in the session; each becomes one usage event
    started bigint not null default 0,
    draining boolean not null default false,
    refused_credentials jsonb not null default '[]',
    -- the sequence numbers of the settled usage events; the final number of events of a session that has ended
    settled_seqs int8multirange not null default '{}',
    final_count bigint,
    -- the leases and lease responses of the closed session are removed
    cleared boolean not null default false
) with (fillfactor = 50);
create index proxy_sessions_open_idx on proxy_sessions (state, valid_until) where state < 3;
create index proxy_sessions_closed_idx on proxy_sessions (cleared, id) where state = 3;

-- Leases and lease responses are updated and deleted often, so dead rows are vacuumed before they are a large share of the
-- table.
create table leases (
    pool_id bigint not null references pools (id),
    session_id bigint not null references proxy_sessions (id),
    granted bigint not null default 0,
    returned bigint not null default 0,
    charged bigint not null default 0,
    -- the generation of the pool in which the lease was last recalled
    recalled_generation bigint not null default 0,
    primary key (pool_id, session_id),
    check (granted - returned - charged >= 0)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
create index leases_session_idx on leases (session_id);

-- The last lease response of each account in a session, for a request that is sent again.
create table lease_responses (
    session_id bigint not null references proxy_sessions (id) on delete cascade,
    account_id uuid not null,
    request_number bigint not null,
    response bytea not null,
    primary key (session_id, account_id)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

---- ledger: double entry, append-only, every transaction sums to zero

create table ledger_transactions (
    id uuid primary key,
    kind text not null check (kind in ('payment', 'promotion', 'refund', 'correction', 'expiry', 'usage')),
    -- the reference of the transaction: unique per kind, so that nothing is booked twice
    reference text not null,
    reason text not null default '',
    actor text not null default '',
    -- the request that a correction refers to, or that a refund gives money back for
    request_id uuid,
    -- the credit that a refund pays back, or that has expired
    credit_id uuid references ledger_transactions (id),
    -- of a credit: its place in the order of use, and when it expires; null if it does not
    priority smallint not null default 50,
    expires_at timestamptz,
    -- of an expiry: when the credit expired, however late that was booked; null if the time of booking counts
    effective_at timestamptz,
    -- the beginning of the database transaction, so that the usage records of a batch and its entries have the same day
    created_at timestamptz not null default now(),
    unique (kind, reference)
);
create index ledger_transactions_time_idx on ledger_transactions (created_at, id);
-- what an admin token has booked today
create index ledger_transactions_actor_idx on ledger_transactions (actor, created_at) where kind <> 'usage';
create index ledger_transactions_request_idx on ledger_transactions (request_id) where request_id is not null;

create table ledger_entries (
    transaction_id uuid not null references ledger_transactions (id),
    line integer not null,
    -- the kind of the transaction, so that an index finds an account's payments among its many charges
    kind text not null,
    -- 'customer' entries belong to an account; the other ledger accounts are those of the operator
    ledger_account text not null check (ledger_account in ('customer', 'funding', 'promotion', 'adjustment', 'breakage', 'revenue')),
    account_id uuid references accounts (id),
    -- positive: raises the balance of the ledger account
    amount bigint not null check (amount <> 0),
    primary key (transaction_id, line),
    check ((ledger_account = 'customer') = (account_id is not null))
);
create index ledger_entries_account_idx on ledger_entries (account_id, transaction_id) where account_id is not null;
create index ledger_entries_movements_idx on ledger_entries (account_id, transaction_id) where account_id is not null and kind <> 'usage';

-- +goose StatementBegin
create function check_ledger_sums() returns trigger language plpgsql as $$
declare
    unbalanced uuid;
begin
    select e.transaction_id into unbalanced
    from ledger_entries e
    where e.transaction_id in (select distinct transaction_id from inserted)
    group by e.transaction_id
    having sum(e.amount) <> 0
    limit 1;
    if unbalanced is not null then
        raise exception 'ledger transaction % does not sum to zero', unbalanced using errcode = 'check_violation';
    end if;
    return null;
end $$;
-- +goose StatementEnd
-- All entries of a transaction are written by one statement, so the sum is checked once for it.
create trigger ledger_entries_sum_to_zero after insert on ledger_entries
    referencing new table as inserted for each statement execute function check_ledger_sums();
create trigger ledger_entries_append_only before update or delete or truncate on ledger_entries
    for each statement execute function reject_change();
create trigger ledger_transactions_append_only before update or delete or truncate on ledger_transactions
    for each statement execute function reject_change();

---- credits: what became of the money that was given to an account

-- The facts of a credit are in its ledger transaction; the lock of the account's balance pool guards the rest. Charges are
-- attributed when a credit is booked, taken from or expires, and read: see pools.attributed.
create table credits (
    transaction_id uuid primary key references ledger_transactions (id),
    account_id uuid not null references accounts (id),
    amount bigint not null check (amount > 0),
    used bigint not null default 0 check (used >= 0),
    refunded bigint not null default 0 check (refunded >= 0),
    expired bigint not null default 0 check (expired >= 0),
    -- what is left of an expired credit for the requests that had begun before
    held bigint not null default 0 check (held >= 0),
    -- when the expiry was booked
    expired_at timestamptz,
    check (used + refunded + expired + held <= amount),
    check (expired_at is null or used + refunded + expired + held = amount)
) with (fillfactor = 70);
create index credits_account_idx on credits (account_id, transaction_id);
create index credits_open_idx on credits (account_id) where used + refunded + expired < amount;

---- usage records, in monthly partitions by the time of the request, which is in its id

create table usage_records (
    request_id uuid not null,
    session_id bigint not null,
    seq bigint not null,
    account_id uuid not null,
    key_id uuid not null,
    -- the project of the key when the request was admitted; null for none
    project_id uuid,
    model text not null,
    format text not null,
    provider text not null default '',
    route text not null default '',
    -- the name in the catalog of the credential with which the route was called; no reference: the record outlives it
    credential text not null default '',
    provider_request_id text not null default '',
    status text not null,
    http_status integer not null default 0,
    stream boolean not null default false,
    started_at timestamptz not null,
    finished_at timestamptz not null,
    first_byte_ms bigint not null default 0,
    -- the counts that the event reports. Not jsonb: to convert them costs more than to store them, and only programs read them
    usage json not null,
    rule text not null,
    estimated boolean not null default false,
    -- why the report of the provider was not taken as it was; empty if it was
    doubt text not null default '',
    price_version bigint not null,
    price_multiplier bigint not null default 1000000,
    cost bigint not null check (cost >= 0),
    reservation bigint not null check (reservation >= 0),
    video_job text not null default '',
    -- the ledger transaction; null if the request costs nothing
    transaction_id uuid,
    settled_at timestamptz not null default clock_timestamp(),
    -- the routes that were tried or skipped; null if the first one served the request
    attempts jsonb,
    -- what the provider charges the operator, and by which version of its price; null if it is unknown. The version is null, too, if
    -- no route was called
    provider_cost bigint check (provider_cost >= 0),
    provider_price_version bigint,
    primary key (request_id)
) partition by range (request_id);
-- Most of the cost of settling a record is the cost of its indexes. There is no index by account: the records of an account
-- are found by its few keys.
create index usage_records_key_idx on usage_records (key_id, request_id);
create index usage_records_model_idx on usage_records (model, request_id);
-- Rare properties that operators look for. Most records are in neither index.
create index usage_records_unsuccessful_idx on usage_records (status, request_id) where status <> 'completed';
create index usage_records_estimated_idx on usage_records (request_id) where estimated;
-- Records are written in the order of this time, so an index of page ranges finds the newest records at very little cost.
create index usage_records_settled_idx on usage_records using brin (settled_at) with (pages_per_range = 32, autosummarize = on);
-- Finds the page ranges that may have an id, at very little cost, too.
create index usage_records_provider_request_idx on usage_records using brin (provider_request_id text_bloom_ops (n_distinct_per_range = 1000))
    with (pages_per_range = 32, autosummarize = on);
-- Each partition has the same trigger, because a statement fires only the statement triggers of the table that it names.
create trigger usage_records_append_only before update or delete or truncate on usage_records
    for each statement execute function reject_change();

-- +goose StatementBegin
-- Creates the monthly partitions of usage_records that cover a span, and returns how many.
-- It runs as its owner, so that the role of the running control plane need not own tables.
create function ensure_usage_partitions(from_moment timestamptz, to_moment timestamptz) returns integer language plpgsql
    security definer set search_path = public, pg_temp as $$
declare
    month timestamptz := date_trunc('month', from_moment at time zone 'utc') at time zone 'utc';
    following timestamptz;
    name text;
    created integer := 0;
begin
    perform pg_advisory_xact_lock(7310002);
    while month <= to_moment loop
        following := ((month at time zone 'utc') + interval '1 month') at time zone 'utc';
        name := 'usage_records_' || to_char(month at time zone 'utc', 'YYYYMM');
        if to_regclass(name) is null then
            execute format('create table %I partition of usage_records for values from (%L) to (%L)',
                name, uuid_floor(month), uuid_floor(following));
            execute format('create trigger append_only before update or delete or truncate on %I for each statement execute function reject_change()', name);
            created := created + 1;
        end if;
        month := following;
    end loop;
    return created;
end $$;
-- +goose StatementEnd
select ensure_usage_partitions(now() - interval '40 days', now() + interval '70 days');

-- One row for each closed month of usage. The rows are kept for ever.
create table usage_months (
    month date primary key check (extract(day from month) = 1),
    closed_at timestamptz not null default now(),
    -- the totals when the month was closed
    records bigint not null,
    cost bigint not null,
    -- the time of the export, and its file; if an operator exported the month, the operator's name and no file
    exported_at timestamptz,
    exported_by text not null default '',
    file text not null default '',
    sha256 bytea,
    dropped_at timestamptz,
    check (dropped_at is null or exported_at is not null)
);

-- +goose StatementBegin
-- The lowest request id that can be stored: that of the first partition whose month is not closed.
create function usage_lowest() returns uuid language sql stable as $$
    select greatest(
        (select min(substring(pg_get_expr(c.relpartbound, c.oid) from 'FROM \(''([0-9a-f-]+)''\)'))
            from pg_inherits i join pg_class c on c.oid = i.inhrelid
            where i.inhparent = 'usage_records'::regclass),
        (select max(uuid_floor((m.month + interval '1 month') at time zone 'utc')::text) from usage_months m)
    )::uuid
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- The upper bound of the request ids that can be stored; the bound itself cannot be stored.
create function usage_highest() returns uuid language sql stable as $$
    select max(substring(pg_get_expr(c.relpartbound, c.oid) from 'TO \(''([0-9a-f-]+)''\)'))::uuid
    from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'usage_records'::regclass
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- The first day of which usage records are kept; older usage is only in the roll-ups.
create function usage_kept_from() returns date language sql stable as $$
    select coalesce(min(to_date(right(c.relname, 6), 'YYYYMM')), current_date)
    from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'usage_records'::regclass
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Closes a month of usage for ever: its events that are settled later go into quarantine. A constraint of the partition
-- refuses inserts, so that a concurrent settlement cannot add a record after the export.
create function close_usage_month(which date) returns boolean language plpgsql
    security definer set search_path = public, pg_temp as $$
declare
    part text := 'usage_records_' || to_char(which, 'YYYYMM');
begin
    if to_regclass(part) is null or exists (select from usage_months m where m.month = which) then
        return false;
    end if;
    execute format('alter table %I add constraint closed check (false) not valid', part);
    execute format('insert into usage_months (month, records, cost) select %L, count(*), coalesce(sum(cost), 0) from %I', which, part);
    return true;
end $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Drops a month that was exported.
create function drop_usage_month(which date) returns boolean language plpgsql
    security definer set search_path = public, pg_temp as $$
begin
    update usage_months set dropped_at = now() where month = which and exported_at is not null and dropped_at is null;
    if not found then
        return false;
    end if;
    execute format('drop table usage_records_%s', to_char(which, 'YYYYMM'));
    return true;
end $$;
-- +goose StatementEnd

---- bills of providers: they are compared with usage records, and nothing depends on them

create table provider_bills (
    id uuid primary key,
    -- of the unpacked content: a file is imported once
    sha256 bytea not null unique,
    name text not null,
    -- no reference: a bill outlives the catalog entry of its provider
    provider text not null,
    format text not null,
    -- the gateway's credential that it is about, or pairs of the bill's name and the gateway's; empty if it names them
    credential text not null,
    time_zone text not null,
    -- what is compared: amounts, or the tokens of an export without amounts
    unit text not null check (unit in ('money', 'tokens')),
    -- empty if the file names none
    currency text not null,
    first_day date not null,
    last_day date not null,
    ends_at timestamptz not null,
    lines bigint not null,
    with_request bigint not null,
    billed bigint not null,
    -- taxes, fees, credits: what is no charge for usage
    other bigint not null,
    -- the smallest unit that an amount shows, in nano-units; 0 if there is none
    step bigint not null,
    imported_at timestamptz not null,
    imported_by text not null,
    accepted_at timestamptz,
    accepted_by text not null default '',
    accepted_as text not null default '',
    -- the result of the last comparison; parts are objects with kind, over, under and count
    compared_at timestamptz,
    compared_billed bigint not null default 0,
    recorded bigint not null default 0,
    calls bigint not null default 0,
    open_amount bigint not null default 0,
    by_model boolean not null default true,
    by_credential boolean not null default true,
    parts jsonb not null default '[]'
);

-- No reference to the bill: the lines are written while their file is read, and the bill at the end. Lines without a bill are of an import
-- under way, or of one that did not end; these are removed after an hour.
create table provider_bill_lines (
    bill_id uuid not null,
    number bigint not null,
    day date not null,
    model text not null,
    credential text not null,
    request_id text not null,
    -- the amount in nano-units, and the rest in 1e-18 of the currency unit; tokens of an export without amounts
    amount bigint not null,
    rest bigint not null check (rest between 0 and 999999999),
    requests bigint not null,
    input bigint not null,
    output bigint not null,
    primary key (bill_id, number)
);

create table provider_bill_differences (
    bill_id uuid not null references provider_bills (id) on delete cascade,
    number bigint not null,
    day date not null,
    model text not null,
    credential text not null,
    billed bigint not null,
    recorded bigint not null,
    lines bigint not null,
    calls bigint not null,
    open_amount bigint not null,
    parts jsonb not null,
    primary key (bill_id, number)
);
create index provider_bill_differences_open_idx on provider_bill_differences (bill_id, open_amount desc, number);

---- roll-ups of usage records, which outlive them

create table usage_daily (
    account_id uuid not null,
    -- the UTC day of the ledger transaction, used by statements, and that of the request, used by totals and partitions
    booked_on date not null,
    used_on date not null,
    key_id uuid not null,
    -- 00000000-0000-0000-0000-000000000000 for none
    project_id uuid not null,
    model text not null,
    -- empty for the default one
    service_tier text not null,
    requests bigint not null,
    estimated bigint not null,
    -- requests whose client left before the end of the answer
    client_gone bigint not null,
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
    primary key (account_id, booked_on, used_on, key_id, project_id, model, service_tier)
) with (fillfactor = 70);
create index usage_daily_used_idx on usage_daily (used_on);
create index usage_daily_model_idx on usage_daily (model, used_on);

-- For sums over a long time, which then need not read each day.
create table usage_weekly (
    -- the Monday that the week of the requests begins with
    week date not null,
    account_id uuid not null,
    key_id uuid not null,
    project_id uuid not null,
    model text not null,
    -- empty for the default one
    service_tier text not null,
    requests bigint not null,
    estimated bigint not null,
    -- requests whose client left before the end of the answer
    client_gone bigint not null,
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
    primary key (week, account_id, key_id, project_id, model, service_tier)
) with (fillfactor = 70);

-- For sums over all accounts.
create table usage_daily_models (
    used_on date not null,
    model text not null,
    -- empty for the default one
    service_tier text not null,
    -- concurrent settlements write rows with different numbers, so that they do not wait for one another
    shard smallint not null,
    requests bigint not null,
    estimated bigint not null,
    -- requests whose client left before the end of the answer
    client_gone bigint not null,
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
    primary key (used_on, model, service_tier, shard)
) with (fillfactor = 50);

-- +goose StatementBegin
-- Adds the sums of a batch of new records to all roll-ups. The tables, and the rows of each, are locked in one order.
create function update_rollups(batch usage_daily[]) returns void language plpgsql as $$
begin
    insert into usage_daily as d
    select *
    from unnest(batch)
    order by account_id, booked_on, used_on, key_id, project_id, model, service_tier
    on conflict (account_id, booked_on, used_on, key_id, project_id, model, service_tier) do update
    set requests = d.requests + excluded.requests, estimated = d.estimated + excluded.estimated, client_gone = d.client_gone + excluded.client_gone,
        input = d.input + excluded.input,
        cached_input = d.cached_input + excluded.cached_input, cache_write = d.cache_write + excluded.cache_write,
        output = d.output + excluded.output, reasoning = d.reasoning + excluded.reasoning, audio_in = d.audio_in + excluded.audio_in,
        audio_out = d.audio_out + excluded.audio_out, image_in = d.image_in + excluded.image_in, image_out = d.image_out + excluded.image_out,
        images = d.images + excluded.images, seconds = d.seconds + excluded.seconds,
        server_tool_requests = d.server_tool_requests + excluded.server_tool_requests, cost = d.cost + excluded.cost;

    insert into usage_weekly as w
    select used_on - (extract(isodow from used_on)::integer - 1), account_id, key_id, project_id, model, service_tier, sum(requests), sum(estimated), sum(client_gone), sum(input),
        sum(cached_input), sum(cache_write), sum(output), sum(reasoning), sum(audio_in), sum(audio_out), sum(image_in), sum(image_out),
        sum(images), sum(seconds), sum(server_tool_requests), sum(cost)
    from unnest(batch)
    group by 1, 2, 3, 4, 5, 6
    order by 1, 2, 3, 4, 5, 6
    on conflict (week, account_id, key_id, project_id, model, service_tier) do update
    set requests = w.requests + excluded.requests, estimated = w.estimated + excluded.estimated, client_gone = w.client_gone + excluded.client_gone,
        input = w.input + excluded.input,
        cached_input = w.cached_input + excluded.cached_input, cache_write = w.cache_write + excluded.cache_write,
        output = w.output + excluded.output, reasoning = w.reasoning + excluded.reasoning, audio_in = w.audio_in + excluded.audio_in,
        audio_out = w.audio_out + excluded.audio_out, image_in = w.image_in + excluded.image_in, image_out = w.image_out + excluded.image_out,
        images = w.images + excluded.images, seconds = w.seconds + excluded.seconds,
        server_tool_requests = w.server_tool_requests + excluded.server_tool_requests, cost = w.cost + excluded.cost;

    insert into usage_daily_models as m
    select used_on, model, service_tier, pg_backend_pid() % 8, sum(requests), sum(estimated), sum(client_gone), sum(input), sum(cached_input), sum(cache_write), sum(output),
        sum(reasoning), sum(audio_in), sum(audio_out), sum(image_in), sum(image_out), sum(images), sum(seconds), sum(server_tool_requests), sum(cost)
    from unnest(batch)
    group by used_on, model, service_tier
    order by used_on, model, service_tier
    on conflict (used_on, model, service_tier, shard) do update
    set requests = m.requests + excluded.requests, estimated = m.estimated + excluded.estimated, client_gone = m.client_gone + excluded.client_gone,
        input = m.input + excluded.input,
        cached_input = m.cached_input + excluded.cached_input, cache_write = m.cache_write + excluded.cache_write,
        output = m.output + excluded.output, reasoning = m.reasoning + excluded.reasoning, audio_in = m.audio_in + excluded.audio_in,
        audio_out = m.audio_out + excluded.audio_out, image_in = m.image_in + excluded.image_in, image_out = m.image_out + excluded.image_out,
        images = m.images + excluded.images, seconds = m.seconds + excluded.seconds,
        server_tool_requests = m.server_tool_requests + excluded.server_tool_requests, cost = m.cost + excluded.cost;
end $$;
-- +goose StatementEnd

---- ledger check: sums of all rows written before a time, to which each check adds the newer rows

create table ledger_check_state (
    one boolean primary key default true check (one),
    summed_until timestamptz not null
);
create table ledger_check_sums (
    -- an account or a key
    owner_id uuid primary key,
    -- the cost of its usage records
    used bigint not null default 0,
    -- the sum of its usage charges in the ledger, and the sum of all its entries; 0 for keys
    charged bigint not null default 0,
    entries bigint not null default 0
) with (fillfactor = 70);

-- Runs of ledger checks, the last of each kind: those that a person started, which a replica claims and runs, and the
-- results of the periodic ones.
create table ledger_checks (
    id uuid primary key,
    -- changed and recent run periodically; all and receipts are started by a person
    kind text not null check (kind in ('changed', 'recent', 'all', 'receipts')),
    state text not null check (state in ('waiting', 'running', 'done', 'failed')),
    actor text not null,
    -- how many of the steps are done
    done bigint not null default 0,
    total bigint not null default 0,
    -- the report; null until there is one
    ok boolean,
    checks jsonb,
    took_ms bigint not null default 0,
    -- Until this time, only the replica that claimed the run executes it. The number distinguishes claims.
    claimed_until timestamptz,
    claim_number bigint not null default 0,
    created_at timestamptz not null default clock_timestamp(),
    started_at timestamptz,
    ended_at timestamptz
);
create index ledger_checks_kind_idx on ledger_checks (kind, id);
create unique index ledger_checks_open_idx on ledger_checks (kind) where state in ('waiting', 'running');

---- quarantine: usage events that cannot be settled and wait for an operator

create table quarantine (
    id bigint generated always as identity primary key,
    session_id bigint not null default 0,
    seq bigint not null default 0,
    request_id text not null default '',
    reason text not null,
    payload bytea not null,
    created_at timestamptz not null default clock_timestamp(),
    -- the operator's decision
    resolved_at timestamptz,
    resolution text not null default '' check (resolution in ('', 'released', 'dismissed')),
    note text not null default ''
);
-- By a hash, since a whole event can exceed the size limit of an index entry.
create unique index quarantine_once_idx on quarantine (session_id, seq, sha256(payload));
create index quarantine_open_idx on quarantine (id) where resolved_at is null;

---- catalog

create table providers (
    id text primary key,
    name text not null unique,
    -- everything but credentials, in the form of the catalog entry
    spec jsonb not null,
    revision bigint not null,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now()
);

create table provider_credentials (
    id text primary key,
    provider_id text not null references providers (id) on delete cascade,
    name text not null,
    -- what is sealed: a secret, or the parameters from which proxies get and renew what they send
    kind text not null default 'secret',
    sealed bytea not null,
    cipher_key_id text not null,
    enabled boolean not null default true,
    -- when the first of its client certificates expires; null if it has none
    certificate_expires_at timestamptz,
    -- since when and why the provider refuses it, as a live proxy reports; null while no proxy does
    refused_at timestamptz,
    refused_reason text not null default '',
    created_at timestamptz not null default now(),
    unique (provider_id, name)
);
create index provider_credentials_direct_idx on provider_credentials (id) where cipher_key_id not like 'dk\_%';

create table models (
    id text primary key,
    type text not null check (type in ('text', 'image', 'video')),
    enabled boolean not null,
    public boolean not null,
    -- everything but prices and routes, in the form of the catalog entry
    spec jsonb not null,
    revision bigint not null,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    deleted_at timestamptz
);

-- The newest version of a model is in force.
create table model_prices (
    version bigint generated always as identity primary key,
    model_id text not null references models (id),
    sheet jsonb not null,
    effective_from timestamptz not null,
    created_at timestamptz not null default now()
);
create index model_prices_model_idx on model_prices (model_id, version);
create trigger model_prices_append_only before update or delete or truncate on model_prices
    for each statement execute function reject_change();

-- Scheduled prices. At its time, a row becomes the next version in model_prices.
create table scheduled_prices (
    id uuid primary key,
    model_id text not null references models (id),
    sheet jsonb not null,
    effective_from timestamptz not null,
    created_at timestamptz not null default clock_timestamp()
);
create index scheduled_prices_due_idx on scheduled_prices (effective_from);

create table routes (
    id text primary key,
    model_id text not null references models (id),
    provider_id text not null references providers (id),
    spec jsonb not null,
    created_at timestamptz not null default now()
);
create index routes_model_idx on routes (model_id);

-- What providers charge the operator. The newest version of a route is in force. The rows outlive the route: usage that is
-- settled late needs the version of its time.
create table provider_prices (
    version bigint generated always as identity primary key,
    route_id text not null,
    -- null: the price is unknown from then on
    sheet jsonb,
    effective_from timestamptz not null,
    created_at timestamptz not null default now()
);
create index provider_prices_route_idx on provider_prices (route_id, version);
create trigger provider_prices_append_only before update or delete or truncate on provider_prices
    for each statement execute function reject_change();

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
    -- what the requested video costs: jobs that are not billed yet bound the creation of further ones
    expected_cost bigint not null check (expected_cost >= 0),
    record jsonb not null,
    -- counts the updates of the record: an update of an older version is refused
    version bigint not null default 1,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    ended_at timestamptz
);
create index video_jobs_account_idx on video_jobs (account_id, id);
create index video_jobs_unbilled_idx on video_jobs (account_id, ended_at);
create index video_jobs_status_idx on video_jobs (status, id);
create index video_jobs_open_idx on video_jobs (updated_at) where ended_at is null;

---- outbox: messages written with a change and published after it, in order

-- Rows are deleted soon after they were inserted, so dead rows are vacuumed before they are a large share of the table.
create table outbox (
    id bigint generated always as identity primary key,
    subject text not null,
    -- null deletes the catalog entry
    payload bytea,
    created_at timestamptz not null default clock_timestamp()
) with (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);

---- webhooks: events are written with their cause, then a delivery for each endpoint

create table webhook_endpoints (
    id uuid primary key,
    url text not null check (url <> ''),
    description text not null default '',
    -- none: every type
    event_types text[] not null default '{}',
    enabled boolean not null default true,
    -- why the control plane disabled it; empty if it did not
    disabled_reason text not null default '',
    -- the failed attempts since the last success, the time of the first of them, and the time before which no other is made
    failures integer not null default 0,
    failing_since timestamptz,
    paused_until timestamptz,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now()
);

create table webhook_secrets (
    id uuid primary key,
    endpoint_id uuid not null references webhook_endpoints (id) on delete cascade,
    sealed bytea not null,
    cipher_key_id text not null,
    created_at timestamptz not null default now(),
    -- until this time, events are also signed with a replaced secret
    expires_at timestamptz
);
create index webhook_secrets_endpoint_idx on webhook_secrets (endpoint_id, id);

create table webhook_events (
    id uuid primary key,
    type text not null,
    -- no references: checking them would lock rows that changes of accounts and keys hold while they wait for pools
    account_id uuid,
    key_id uuid,
    -- the facts that were known in the transaction of the cause
    facts jsonb not null,
    -- at most one event with this key is stored; null disables deduplication
    deduplication_key text unique,
    -- the endpoint that a test event is for; null for all
    endpoint_id uuid references webhook_endpoints (id) on delete cascade,
    -- the body, the same in every attempt; null until deliveries are created
    body bytea,
    created_at timestamptz not null default clock_timestamp()
);
create index webhook_events_new_idx on webhook_events (id) where body is null;
create index webhook_events_time_idx on webhook_events (created_at, id);
create index webhook_events_account_idx on webhook_events (account_id, created_at, id) where account_id is not null;

create table webhook_deliveries (
    id uuid primary key,
    event_id uuid not null references webhook_events (id) on delete cascade,
    endpoint_id uuid not null references webhook_endpoints (id) on delete cascade,
    state text not null default 'pending' check (state in ('pending', 'delivered', 'failed')),
    -- all attempts, and those since the delivery was last requested, which determine the next delay
    attempts integer not null default 0,
    attempts_since_request integer not null default 0,
    next_attempt_at timestamptz not null default clock_timestamp(),
    -- Until this time, only the replica that claimed the delivery attempts it. The number distinguishes claims. A claim of a
    -- replica that ended expires.
    claimed_until timestamptz,
    claim_number bigint not null default 0,
    created_at timestamptz not null default clock_timestamp(),
    ended_at timestamptz,
    unique (event_id, endpoint_id)
) with (fillfactor = 80);
create index webhook_deliveries_due_idx on webhook_deliveries (endpoint_id, next_attempt_at) where state = 'pending';
create index webhook_deliveries_claimed_idx on webhook_deliveries (endpoint_id) where claimed_until is not null;
create index webhook_deliveries_list_idx on webhook_deliveries (endpoint_id, id);

-- +goose StatementBegin
-- A UUID of version 7.
create function gen_delivery_id() returns uuid language sql volatile as $$
    select (lpad(to_hex((extract(epoch from clock_timestamp()) * 1000)::bigint), 12, '0') || '7' ||
        substring(replace(gen_random_uuid()::text, '-', '') from 14))::uuid
$$;
-- +goose StatementEnd

create table webhook_attempts (
    delivery_id uuid not null references webhook_deliveries (id) on delete cascade,
    number integer not null,
    started_at timestamptz not null,
    -- 0 if there was no response
    status integer not null,
    latency_ms bigint not null,
    -- the error class; empty for a success
    error text not null default '',
    -- the printable beginning of an error response
    excerpt text not null default '',
    primary key (delivery_id, number)
);

---- traffic: what the proxies have reported, by minute and hour; nothing depends on it

-- Sums of arrays, element by element.
-- +goose StatementBegin
create function bigint_array_add(a bigint[], b bigint[]) returns bigint[] language sql immutable parallel safe as $$
    select case when a is null then b when b is null then a
        else (select array_agg(coalesce(u.x, 0) + coalesce(u.y, 0) order by u.i) from unnest(a, b) with ordinality as u (x, y, i)) end
$$;
-- +goose StatementEnd
create aggregate bigint_array_sum(bigint[]) (sfunc = bigint_array_add, stype = bigint[]);

-- The minutes that are written, with the number of proxies that were heard and of those that were not. What happened in
-- other minutes is unknown.
create table traffic_coverage (
    minute timestamptz primary key,
    heard integer not null,
    silent integer not null
);

-- What was counted in a minute, by measure and labels. Partitions are of one day.
create table traffic_minutes (
    minute timestamptz not null,
    measure text not null,
    endpoint text not null,
    model text not null,
    provider text not null,
    route text not null,
    status integer not null,
    code text not null,
    outcome text not null,
    n bigint not null,
    sum_ms bigint not null,
    -- null for a measure that is no time
    buckets bigint[]
) partition by range (minute);
create index traffic_minutes_measure_idx on traffic_minutes (measure, minute);

-- The same by hour.
create table traffic_hours (
    hour timestamptz not null,
    measure text not null,
    endpoint text not null,
    model text not null,
    provider text not null,
    route text not null,
    status integer not null,
    code text not null,
    outcome text not null,
    n bigint not null,
    sum_ms bigint not null,
    buckets bigint[],
    primary key (measure, hour, endpoint, model, provider, route, status, code, outcome)
) with (fillfactor = 70);

-- Refused requests by hour, account, key and code. Account and key are null for requests without a valid key.
create table traffic_refusals (
    id bigint generated always as identity primary key,
    hour timestamptz not null,
    account_id uuid,
    key_id uuid,
    code text not null,
    status integer not null,
    -- of several accounts or keys: there were too many to count each
    other boolean not null,
    n bigint not null,
    first_at timestamptz not null,
    last_at timestamptz not null,
    -- of the last request; short is null if no pool was short
    request_id text not null,
    model text not null,
    short jsonb,
    -- why, if the code does not say that; otherwise empty
    reason text not null default '',
    unique nulls not distinct (hour, account_id, key_id, code, status, other)
) with (fillfactor = 70);
create index traffic_refusals_account_idx on traffic_refusals (account_id, id);
create index traffic_refusals_key_idx on traffic_refusals (key_id, id);

-- +goose StatementBegin
-- Creates the partitions of traffic_minutes for today and tomorrow, and drops those of days before a time. It runs as its
-- owner, so that the role of the running control plane need not own tables.
create function keep_traffic_partitions(since timestamptz) returns void language plpgsql
    security definer set search_path = public, pg_temp as $$
declare
    day date;
    name text;
begin
    perform pg_advisory_xact_lock(7310017);
    for day in select (now() at time zone 'utc')::date + i from generate_series(0, 1) as i loop
        name := 'traffic_minutes_' || to_char(day, 'YYYYMMDD');
        if to_regclass(name) is null then
            execute format('create table %I partition of traffic_minutes for values from (%L) to (%L)',
                name, day::timestamp at time zone 'utc', (day + 1)::timestamp at time zone 'utc');
        end if;
    end loop;
    for name in
        select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent = 'traffic_minutes'::regclass and to_date(right(c.relname, 8), 'YYYYMMDD') < (since at time zone 'utc')::date
    loop
        execute format('drop table %I', name);
    end loop;
end $$;
-- +goose StatementEnd
select keep_traffic_partitions(now());

---- administration

create table admin_tokens (
    id uuid primary key,
    name text not null,
    token_hash bytea not null unique,
    scopes text[] not null check (scopes <@ array['cabinet', 'credits', 'keys.reveal', 'observe', 'operator', 'read']),
    -- the limits of a day of UTC; null is no limit
    credits_per_day bigint check (credits_per_day >= 0),
    reveals_per_day bigint check (reveals_per_day >= 0),
    expires_at timestamptz,
    last_used_at timestamptz,
    revoked_at timestamptz,
    created_at timestamptz not null default now()
);

-- Sessions of people in the console.
create table console_sessions (
    id uuid primary key,
    -- the SHA-256 of the secret in the cookie
    secret_hash bytea not null unique,
    -- the admin token that the session is bound to; null for one of an OpenID Connect provider
    token_hash bytea,
    name text not null,
    scopes text[] not null,
    method text not null,
    address text not null,
    agent text not null,
    created_at timestamptz not null default now(),
    last_used_at timestamptz not null default now(),
    expires_at timestamptz not null,
    ended_at timestamptz
);

create table audit_log (
    id bigint generated always as identity primary key,
    created_at timestamptz not null default clock_timestamp(),
    actor text not null,
    action text not null,
    object text not null,
    before jsonb,
    after jsonb,
    request_id text not null default ''
);
create index audit_log_object_idx on audit_log (object, id);
create index audit_log_actor_idx on audit_log (actor, id);
create index audit_log_action_idx on audit_log (action text_pattern_ops, id);
create index audit_log_time_idx on audit_log using brin (created_at) with (pages_per_range = 32, autosummarize = on);
create index audit_log_request_idx on audit_log (request_id) where request_id <> '';
-- how often an admin token has shown keys today
create index audit_log_reveal_idx on audit_log (actor, created_at) where action = 'key.reveal';
create trigger audit_log_append_only before update or truncate on audit_log
    for each statement execute function reject_change();

-- Audit entries that were moved to a file. Only these can be deleted.
create table audit_archives (
    -- the last entry of the file
    last_id bigint primary key,
    entries bigint not null,
    file text not null,
    sha256 bytea not null,
    archived_at timestamptz not null default now()
);

-- +goose StatementBegin
create function check_audit_archived() returns trigger language plpgsql as $$
begin
    if exists (select from deleted d where d.id > (select coalesce(max(last_id), 0) from audit_archives)) then
        raise exception 'audit_log is append-only' using errcode = 'restrict_violation';
    end if;
    return null;
end $$;
-- +goose StatementEnd
create trigger audit_log_archived_first after delete on audit_log
    referencing old table as deleted for each statement execute function check_audit_archived();

-- +goose StatementBegin
-- Removes archived entries. It runs as its owner, because the role of the running control plane may not delete entries.
create function remove_archived_audit(last_id bigint) returns bigint language plpgsql
    security definer set search_path = public, pg_temp as $$
declare
    removed bigint;
begin
    delete from audit_log a where a.id <= remove_archived_audit.last_id;
    get diagnostics removed = row_count;
    return removed;
end $$;
-- +goose StatementEnd

revoke execute on function ensure_usage_partitions(timestamptz, timestamptz), close_usage_month(date), drop_usage_month(date),
    remove_archived_audit(bigint), keep_traffic_partitions(timestamptz) from public;

create table idempotency_keys (
    actor text not null,
    key text not null,
    method text not null,
    path text not null,
    body_hash bytea not null,
    -- the id of the object that the request creates, so that executing it again after a crash creates nothing twice
    operation_id uuid not null,
    -- the response, null until there is one; the body is encrypted, since it can contain a secret
    status integer,
    content_type text,
    etag text not null default '',
    body bytea,
    cipher_key_id text,
    created_at timestamptz not null default now(),
    primary key (actor, key),
    check ((status is null) = (body is null) and (body is null) = (cipher_key_id is null))
);
create index idempotency_keys_age_idx on idempotency_keys (created_at);
create index idempotency_keys_direct_idx on idempotency_keys (operation_id) where cipher_key_id not like 'dk\_%';

---- data keys, and rotations of the master key and of the pepper

-- Data keys encrypt secrets. Each data key is encrypted under a master key of the configuration.
create table data_keys (
    id text primary key check (id like 'dk\_%'),
    sealed bytea not null,
    master_key_id text not null,
    created_at timestamptz not null default now()
);

-- Rotations run in small steps. Any replica can execute a step.
create table rotations (
    id uuid primary key,
    kind text not null check (kind in ('master_key', 'pepper')),
    -- the id of the new master key or pepper
    target text not null,
    -- the position of the pass over API keys: the last key
    position uuid not null default '00000000-0000-0000-0000-000000000000',
    -- rows written so far
    changed bigint not null default 0,
    started_at timestamptz not null default now(),
    finished_at timestamptz
);
create unique index rotations_running_idx on rotations (kind) where finished_at is null;
create index rotations_kind_idx on rotations (kind, id);

---- recovery from lost commits: each transaction of a replica writes a marker, whose absence proves that commits were lost

-- The control plane replicas that may commit. A replica without a row is fenced, and must register again.
create table replicas (
    id text primary key,
    registered_at timestamptz not null default clock_timestamp()
);

-- The last commits of each replica, numbered by the replica.
create table commit_markers (
    replica_id text not null,
    number bigint not null,
    committed_at timestamptz not null default clock_timestamp(),
    primary key (replica_id, number)
);

-- +goose Down
drop function keep_traffic_partitions(timestamptz);
drop table traffic_coverage, traffic_minutes, traffic_hours, traffic_refusals, console_sessions, commit_markers, replicas, rotations, data_keys, idempotency_keys, audit_log, audit_archives, admin_tokens, webhook_attempts,
    webhook_deliveries, webhook_events, webhook_secrets, webhook_endpoints, outbox, video_jobs, model_grants, provider_prices, routes, scheduled_prices,
    model_prices, models, provider_credentials, providers, quarantine, ledger_check_sums, ledger_check_state, ledger_checks, usage_daily_models, usage_weekly;
drop function update_rollups(usage_daily[]);
drop table provider_bill_differences, provider_bill_lines, provider_bills, usage_daily, usage_months, usage_records, credits, ledger_entries, ledger_transactions, lease_responses, leases, proxy_sessions, pools, limits,
    key_changes, key_hashes, api_keys, projects, accounts, settings, cluster_state;
drop function remove_archived_audit(bigint), check_audit_archived(), gen_delivery_id(), drop_usage_month(date), close_usage_month(date), usage_kept_from(), usage_highest(),
    usage_lowest(), ensure_usage_partitions(timestamptz, timestamptz), check_ledger_sums(), reject_unrevoke(), oldest_transaction(), oldest_writer(),
    hours_left(bigint, bigint, bigint, timestamptz), uuid_day(uuid), uuid_floor(timestamptz), trigrams(text), reject_change();
drop aggregate bigint_array_sum(bigint[]), bigint_sum(bigint);
drop function bigint_array_add(bigint[], bigint[]);
