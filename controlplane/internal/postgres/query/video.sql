-- Records of video jobs.

-- name: LockVideoCreations :one
-- The creations of one account wait for each other, so that each sees the jobs before it.
select max_open_video_jobs from accounts where id = @account_id for no key update;

-- name: UnbilledVideoJobs :many
-- What is left of the key limit, of windows of limits and, last, of the balance, with the expected cost of the unbilled jobs that count
-- there: open ones, and completed ones whose usage record is still on its way. All is from one snapshot, so that a job is either
-- unbilled or charged. A raise that is over may still be in a pool that nothing has locked since.
select p.id, p.kind, p.limit_number, p.unlimited,
    (p.total - p.settled - case when p.raised_until <= clock_timestamp() then p.raised_by else 0 end)::bigint as remaining,
    coalesce((extract(epoch from p.ends_at) * 1000)::bigint, 0)::bigint as end_ms, j.open_jobs, j.expected_cost
from pools p
cross join lateral (
    select count(*) filter (where v.ended_at is null) as open_jobs,
        least(coalesce(sum(v.expected_cost), 0), 9223372036854775807)::bigint as expected_cost
    from video_jobs v
    where v.account_id = @account_id and v.id <> @id
        and (p.kind = 1 or v.key_id = p.key_id or p.limit_number is not null and v.record -> 'limits' @> to_jsonb(p.id))
        and (v.ended_at is null or v.ended_at > clock_timestamp() - make_interval(secs => @settling_seconds::float8) and v.status = 'completed'
            and not exists (select from usage_records u where u.request_id = v.request_id))
) as j
where p.account_id = @account_id and p.kind = 1 and p.key_id is null or p.key_id = @key_id and p.kind = 2 or p.id = any(@windows::bigint[])
order by p.kind desc, p.limit_number is not null, p.id;

-- name: InsertVideoJob :exec
insert into video_jobs (id, account_id, key_id, request_id, status, expected_cost, record)
values (@id, @account_id, @key_id, @request_id, @status, @expected_cost, @record)
on conflict (id) do nothing;

-- name: VideoJob :one
select record, version from video_jobs where id = @id and (sqlc.narg('account_id')::uuid is null or account_id = sqlc.narg('account_id'));

-- name: UpdateVideoJob :one
update video_jobs
set status = @status, record = @record, version = version + 1, updated_at = clock_timestamp(),
    ended_at = case when @ended::boolean then clock_timestamp() end
where id = @id and version = @version and ended_at is null
returning version;

-- name: OpenVideoJobs :many
-- Also failed jobs of which nobody has reported what they may cost the operator: the task of one may have been lost after its record
-- was written. A job that no provider has got has no report.
select j.id, j.account_id, j.updated_at
from (
    select v.id, v.account_id, v.updated_at from video_jobs v where v.ended_at is null
    union all
    select v.id, v.account_id, v.updated_at
    from video_jobs v
    where v.status = 'failed' and v.id >= uuid_floor(clock_timestamp() - interval '2 days')
        and (coalesce(v.record ->> 'upstream_id', '') <> '' or coalesce(v.record ->> 'error', '') <> '')
        and not exists (select from usage_records u where u.request_id = v.request_id)
        and not exists (select from quarantine q where q.request_id = 'req_' || replace(v.request_id::text, '-', ''))
) as j
where j.updated_at < clock_timestamp() - make_interval(secs => @idle_seconds::float8)
    and (j.updated_at, j.id) > (@after_updated::timestamptz, @after_id::uuid)
order by j.updated_at, j.id
limit @max_rows;

-- name: ConflictingVideoJobs :many
-- The jobs that are stored with another account, key or request.
select j.id
from (
    select unnest(@ids::uuid[]) as id, unnest(@account_ids::uuid[]) as account_id, unnest(@key_ids::uuid[]) as key_id,
        unnest(@request_ids::uuid[]) as request_id
) as j
join video_jobs v on v.id = j.id
where (v.account_id, v.key_id, v.request_id) is distinct from (j.account_id, j.key_id, j.request_id);

-- name: RestoreVideoJobs :exec
-- Inserts lost jobs, and restores lost updates. A job that has ended stays as it is.
insert into video_jobs (id, account_id, key_id, request_id, status, expected_cost, record, version, created_at, ended_at)
select j.id, j.account_id, j.key_id, j.request_id, j.status, j.expected_cost, j.record::jsonb, j.version, j.created_at,
    case when j.ended then clock_timestamp() end
from (
    select unnest(@ids::uuid[]) as id, unnest(@account_ids::uuid[]) as account_id, unnest(@key_ids::uuid[]) as key_id,
        unnest(@request_ids::uuid[]) as request_id, unnest(@statuses::text[]) as status, unnest(@expected_costs::bigint[]) as expected_cost,
        unnest(@records::text[]) as record,
        unnest(@versions::bigint[]) as version, unnest(@created::timestamptz[]) as created_at, unnest(@ended::boolean[]) as ended
) as j
on conflict (id) do update
set status = excluded.status, record = excluded.record, version = excluded.version, updated_at = clock_timestamp(), ended_at = excluded.ended_at
where video_jobs.ended_at is null and video_jobs.version < excluded.version;

-- name: ListVideoJobs :many
-- The newest first. An open job without a provider's id is unknown after some time; any open job is stuck after a longer
-- time.
select j.id, j.record, j.version, j.created_at, j.updated_at, j.ended_at, j.state::text as state
from (
    select v.id, v.record, v.version, v.account_id, v.status, v.created_at, v.updated_at, v.ended_at,
        case
            when v.ended_at is not null and coalesce(v.record ->> 'error', '') <> '' then 'given_up'
            when v.ended_at is not null then v.status
            when coalesce(v.record ->> 'upstream_id', '') = '' and v.created_at < clock_timestamp() - make_interval(secs => @unknown_seconds::float8) then 'unknown'
            when v.created_at < clock_timestamp() - make_interval(secs => @stuck_seconds::float8) then 'stuck'
            else v.status
        end as state
    from video_jobs v
) as j
where j.id < @below::uuid and j.id >= @floor::uuid
    and (sqlc.narg('id')::uuid is null or j.id = sqlc.narg('id'))
    and (sqlc.narg('account_id')::uuid is null or j.account_id = sqlc.narg('account_id'))
    and (@status::text = '' or j.status = @status)
    and (@state::text = '' or j.state = @state)
order by j.id desc
limit @row_limit;

-- name: SummarizeVideoJobs :many
-- Open jobs by state, and those given up within a day.
select j.state::text as state, count(*) as jobs, coalesce(max(j.age) filter (where j.state <> 'given_up'), 0)::float8 as oldest_seconds
from (
    select case
            when coalesce(v.record ->> 'upstream_id', '') = '' and v.created_at < clock_timestamp() - make_interval(secs => @unknown_seconds::float8) then 'unknown'
            when v.created_at < clock_timestamp() - make_interval(secs => @stuck_seconds::float8) then 'stuck'
            else v.status
        end as state, extract(epoch from clock_timestamp() - v.created_at) as age
    from video_jobs v
    where v.ended_at is null
    union all
    select 'given_up', 0
    from video_jobs v
    where v.status = 'failed' and v.id >= uuid_floor(clock_timestamp() - interval '1 day') and coalesce(v.record ->> 'error', '') <> ''
) as j
group by j.state;
