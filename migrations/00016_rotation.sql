-- Data keys, and the exchange of the master key and of the pepper.

-- +goose Up

-- What seals secrets, each itself sealed under a master key of the configuration.
create table data_keys (
    id text primary key check (id like 'dk\_%'),
    sealed bytea not null,
    master_key_id text not null,
    created_at timestamptz not null default now()
);

-- Exchanges of keys, done in small steps by any replica.
create table rotations (
    id uuid primary key,
    kind text not null check (kind in ('master_key', 'pepper')),
    -- the master key or pepper that everything moves to
    target text not null,
    -- how far a pass over the keys has come
    position uuid not null default '00000000-0000-0000-0000-000000000000',
    -- rows written so far
    changed bigint not null default 0,
    started_at timestamptz not null default now(),
    finished_at timestamptz
);
create unique index rotations_running_idx on rotations (kind) where finished_at is null;
create index rotations_kind_idx on rotations (kind, id);

-- What is still sealed under a master key directly, as releases before this one did.
-- Not concurrently: a key is written by people, and seldom.
-- squawk-ignore require-concurrent-index-creation
create index api_keys_direct_idx on api_keys (id) where cipher_key_id not like 'dk\_%';
-- Not concurrently: a small table.
-- squawk-ignore require-concurrent-index-creation
create index provider_credentials_direct_idx on provider_credentials (id) where cipher_key_id not like 'dk\_%';
-- Not concurrently: it holds a day.
-- squawk-ignore require-concurrent-index-creation
create index idempotency_keys_direct_idx on idempotency_keys (operation_id) where cipher_key_id not like 'dk\_%';

-- The pepper of lookup_hash; null if it was not noted.
alter table api_keys add column pepper_id text;
-- Hashes of keys under further peppers. Like lookup_hash they never change.
create table key_hashes (
    hash bytea primary key check (length(hash) = 32),
    key_id uuid not null references api_keys (id),
    pepper_id text not null,
    created_at timestamptz not null default now(),
    unique (key_id, pepper_id)
);
-- A change of a key that has several hashes is told for each: this one's hash, null for the key's first.
alter table key_changes add column lookup_hash bytea;

-- +goose Down
alter table key_changes drop column lookup_hash;
drop table key_hashes;
alter table api_keys drop column pepper_id;
drop index idempotency_keys_direct_idx, provider_credentials_direct_idx, api_keys_direct_idx;
drop table rotations, data_keys;
