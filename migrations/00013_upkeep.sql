-- What keeps the tables small and the self-check cheap.

-- +goose Up

---- what closed sessions leave behind

-- Set when leases and ops of a closed session are removed.
alter table dataplane_sessions add column cleared boolean not null default false;
-- Not concurrently: a small table.
-- squawk-ignore require-concurrent-index-creation
create index dataplane_sessions_closed_idx on dataplane_sessions (cleared, id) where state = 3;

-- Rows come and go: dead ones are cleared away long before they are a share of the table.
alter table outbox set (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);
alter table leases set (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
alter table lease_ops set (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

---- the self-check

-- Sums that have been verified, over everything written before `upto`: what is newer is added to them at every check.
create table ledger_check_state (
    one boolean primary key default true check (one),
    upto timestamptz not null
);
create table ledger_check_base (
    -- an account or a key
    owner uuid primary key,
    -- the cost of its usage records
    used bigint not null default 0,
    -- what the ledger charged it for usage, and all of its entries; keys have none
    charged bigint not null default 0,
    entries bigint not null default 0
) with (fillfactor = 70);

-- Records are written in the order of this time, so that an index of ranges of pages finds the newest, and costs next to nothing.
-- Not concurrently: a partitioned table's cannot be made so; one of ranges is made fast.
-- squawk-ignore require-concurrent-index-creation
create index usage_records_settled_idx on usage_records using brin (settled_at) with (pages_per_range = 32, autosummarize = on);

-- +goose StatementBegin
-- The first day of which usage records are kept; what lies before it is only in usage_daily.
create function usage_kept_from() returns date language sql stable as $$
    select coalesce(min(to_date(right(c.relname, 6), 'YYYYMM')), current_date)
    from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'usage_records'::regclass
$$;
-- +goose StatementEnd

---- quarantine: what became of an event

alter table quarantine
    add column resolved_at timestamptz,
    add column resolution text not null default '' check (resolution in ('', 'released', 'dismissed')),
    add column note text not null default '';
-- Not concurrently: a small table.
-- squawk-ignore require-concurrent-index-creation
create index quarantine_open_idx on quarantine (id) where resolved_at is null;

---- video jobs

-- Not concurrently: a small table.
-- squawk-ignore require-concurrent-index-creation
create index video_jobs_status_idx on video_jobs (status, id);

-- +goose Down
drop index video_jobs_status_idx;
drop index quarantine_open_idx;
alter table quarantine drop column resolved_at, drop column resolution, drop column note;
drop function usage_kept_from();
drop index usage_records_settled_idx;
drop table ledger_check_base, ledger_check_state;
alter table lease_ops reset (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold);
alter table leases reset (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold);
alter table outbox reset (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold);
drop index dataplane_sessions_closed_idx;
alter table dataplane_sessions drop column cleared;
