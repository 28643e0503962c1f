-- The privileges of the role that the serving control plane connects with. One transaction, because it is one message.
grant usage on schema public to {role};
revoke all on all tables in schema public from {role};
grant select, insert, update, delete on all tables in schema public to {role};
grant usage, select on all sequences in schema public to {role};
-- After a loss of commits the control plane raises the ids that may be in use (RaiseIDs).
grant update on sequence proxy_sessions_id_seq, pools_id_seq, model_prices_version_seq, provider_prices_version_seq, quarantine_id_seq to {role};

-- Append-only tables and the record of migrations. Usage records are in partitions, which are tables of their own.
revoke update, delete on ledger_transactions, ledger_entries, usage_records, model_prices, provider_prices, audit_log from {role};
revoke insert, update, delete on goose_db_version from {role};
do $$
declare
    part regclass;
begin
    for part in select inhrelid::regclass from pg_inherits where inhparent = 'usage_records'::regclass loop
        execute format('revoke update, delete on %s from %s', part, $role${role}$role$);
    end loop;
end $$;
-- Later partitions belong to the owner of the function that creates them.
alter default privileges in schema public grant select, insert on tables to {role};

grant execute on function ensure_usage_partitions(timestamptz, timestamptz), close_usage_month(date), drop_usage_month(date),
    remove_archived_audit(bigint), keep_traffic_partitions(timestamptz) to {role};
