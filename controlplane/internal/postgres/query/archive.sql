-- Months of usage and old audit entries, which are exported and then deleted.

-- name: Now :one
select clock_timestamp()::timestamptz as now;

-- name: CloseUsageMonth :one
select close_usage_month(@month::date)::boolean as closed;

-- name: DropUsageMonth :one
-- The month is not dropped while records that were settled just before it was closed may be missing in the sums of the
-- ledger check. If there are no sums yet, they begin with the totals of the dropped months.
select (case
    when exists (
        select from ledger_check_state s join usage_months m on m.month = @month::date where s.summed_until <= m.closed_at + interval '1 minute'
    ) then false
    else drop_usage_month(@month)
end)::boolean as dropped;

-- name: UsageMonths :many
select month, closed_at, records, cost, exported_at, exported_by, file, sha256, dropped_at from usage_months order by month;

-- name: LockUsageMonth :one
select month, closed_at, records, cost, exported_at, exported_by, file, sha256, dropped_at from usage_months where month = @month for update;

-- name: MarkMonthExported :exec
update usage_months set exported_at = now(), exported_by = @exported_by, file = @file, sha256 = @sha256 where month = @month;

-- name: AuditBefore :many
-- The entries before the first entry of the given time or later. So the archived part of the log has no gaps.
select a.id, a.created_at, a.actor, a.action, a.object, a.before, a.after, a.request_id
from audit_log a
where a.id > @after_id and a.id < coalesce((select min(later.id) from audit_log later where later.created_at >= @before_moment), 9223372036854775807)
order by a.id
limit @row_limit;

-- name: InsertAuditArchive :exec
insert into audit_archives (last_id, entries, file, sha256) values (@last_id, @entries, @file, @sha256);

-- name: RemoveAudit :one
select remove_archived_audit(@last_id)::bigint as removed;

-- name: TryLockArchive :one
select pg_try_advisory_lock(7310005)::boolean as locked;

-- name: UnlockArchive :one
select pg_advisory_unlock(7310005)::boolean as unlocked;

-- name: WaitBrieflyForLocks :exec
set local lock_timeout = '3s';
