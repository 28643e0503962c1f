-- What shows that Postgres has lost commits, however few: each transaction of a
-- control plane leaves a row that nobody else can write, and is looked for in
-- every new life of the server. The table heartbeat is written
-- by the release before only: it can be dropped in the release after this one.

-- +goose Up

-- The control planes that may commit. One whose row is gone must come in again.
create table replicas (
    id text primary key,
    entered_at timestamptz not null default clock_timestamp()
);

-- Their last commits, by the number that each has given its own.
create table witnesses (
    replica text not null,
    n bigint not null,
    at timestamptz not null default clock_timestamp(),
    primary key (replica, n)
);

-- +goose Down
drop table witnesses;
drop table replicas;
