-- Records of video jobs.

-- name: InsertVideoJob :exec
insert into video_jobs (id, account_id, key_id, request_id, status, record)
values (@id, @account_id, @key_id, @request_id, @status, @record)
on conflict (id) do nothing;

-- name: VideoJob :one
select record, rev from video_jobs where id = @id and (sqlc.narg('account_id')::uuid is null or account_id = sqlc.narg('account_id'));

-- name: UpdateVideoJob :one
update video_jobs
set status = @status, record = @record, rev = rev + 1, updated_at = clock_timestamp(),
    ended_at = case when @ended::boolean then clock_timestamp() end
where id = @id and rev = @rev and ended_at is null
returning rev;

-- name: OpenVideoJobs :many
select id from video_jobs
where ended_at is null and updated_at < clock_timestamp() - make_interval(secs => @idle_seconds::float8)
order by updated_at
limit @max_rows;
