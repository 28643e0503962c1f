-- How long usage is kept: months are closed, exported, and only then dropped.

-- +goose Up

-- +goose StatementBegin
-- When the oldest transaction that still runs began. What is booked is booked at the beginning of its transaction, so
-- nothing can be booked any more before this moment.
create function oldest_transaction() returns timestamptz language sql volatile as $$
    select least(min(a.xact_start), clock_timestamp())
    from pg_stat_activity a
    where a.datname = current_database() and a.pid <> pg_backend_pid()
$$;
-- +goose StatementEnd

-- One row for each month of usage that has been closed, for ever.
create table usage_months (
    month date primary key check (extract(day from month) = 1),
    closed_at timestamptz not null default now(),
    -- what it held when it was closed
    records bigint not null,
    cost bigint not null,
    -- when and where it was exported to; by an operator's word if there is no file
    exported_at timestamptz,
    exported_by text not null default '',
    file text not null default '',
    sha256 bytea,
    dropped_at timestamptz,
    check (dropped_at is null or exported_at is not null)
);

-- +goose StatementBegin
-- Takes a month of usage out of settlement for ever: what still comes of it goes into quarantine. Inserts are refused by
-- a constraint of the partition, so that one that is under way cannot slip in behind the export.
create function close_usage_month(which date) returns boolean language plpgsql as $$
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
create function drop_usage_month(which date) returns boolean language plpgsql as $$
begin
    update usage_months set dropped_at = now() where month = which and exported_at is not null and dropped_at is null;
    if not found then
        return false;
    end if;
    execute format('drop table usage_records_%s', to_char(which, 'YYYYMM'));
    return true;
end $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- What request ids can be stored: nothing of a month that is closed, and nothing older.
create or replace function usage_lowest() returns uuid language sql stable as $$
    select greatest(
        (select min(substring(pg_get_expr(c.relpartbound, c.oid) from 'FROM \(''([0-9a-f-]+)''\)'))
            from pg_inherits i join pg_class c on c.oid = i.inhrelid
            where i.inhparent = 'usage_records'::regclass),
        (select max(uuid_floor((m.month + interval '1 month') at time zone 'utc')::text) from usage_months m)
    )::uuid
$$;
-- +goose StatementEnd

-- Audit entries that have been moved to a file. Only such can be deleted: the log stays append-only for everyone else.
create table audit_archives (
    -- the last entry of the file
    upto_id bigint primary key,
    entries bigint not null,
    file text not null,
    sha256 bytea not null,
    archived_at timestamptz not null default now()
);
-- +goose StatementBegin
create function audit_is_archived() returns trigger language plpgsql as $$
begin
    if exists (select from deleted d where d.id > (select coalesce(max(upto_id), 0) from audit_archives)) then
        raise exception 'audit_log is append-only' using errcode = 'restrict_violation';
    end if;
    return null;
end $$;
-- +goose StatementEnd
drop trigger audit_log_append_only on audit_log;
create trigger audit_log_append_only before update on audit_log
    for each statement execute function forbid_change();
create trigger audit_log_archived_first after delete on audit_log
    referencing old table as deleted for each statement execute function audit_is_archived();

-- +goose Down
drop trigger audit_log_archived_first on audit_log;
drop trigger audit_log_append_only on audit_log;
create trigger audit_log_append_only before update or delete on audit_log
    for each statement execute function forbid_change();
drop function audit_is_archived();
drop table audit_archives;
-- +goose StatementBegin
create or replace function usage_lowest() returns uuid language sql stable as $$
    select min(substring(pg_get_expr(c.relpartbound, c.oid) from 'FROM \(''([0-9a-f-]+)''\)'))::uuid
    from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'usage_records'::regclass
$$;
-- +goose StatementEnd
drop function drop_usage_month(date), close_usage_month(date);
drop table usage_months;
drop function oldest_transaction();
