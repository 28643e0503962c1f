-- Each part has an index, and is planned for its values.

-- name: SearchAccounts :many
select a.id, a.name, coalesce(a.external_id, '') as external_id
from accounts a
where lower(a.name) like @part or a.external_id like @exact_part
order by a.id
limit @row_limit;

-- name: SearchKeys :many
select k.id, k.account_id, k.name, coalesce(k.external_id, '') as external_id
from api_keys k
where lower(k.name) like @part or k.external_id like @exact_part or k.hint = @hint
order by k.id
limit @row_limit;

-- name: SearchRequests :many
-- Requests by their ids at the provider. The index has page ranges, so that it costs little to write.
select request_id, account_id, model from usage_records where provider_request_id = @provider_request_id limit @row_limit;

-- name: SearchModels :many
select id from models where deleted_at is null and lower(id) like @part order by id limit @row_limit;

-- name: SearchProviders :many
select id from providers where lower(id) like @part order by id limit @row_limit;

-- name: AccountsInRange :many
select id, name, coalesce(external_id, '') as external_id from accounts where id between @lowest and @highest order by id limit @row_limit;

-- name: KeysInRange :many
select id, account_id, name, coalesce(external_id, '') as external_id from api_keys where id between @lowest and @highest order by id limit @row_limit;

-- name: RequestsInRange :many
select request_id, account_id, model from usage_records where request_id between @lowest and @highest order by request_id desc limit @row_limit;

-- name: VideoJobsInRange :many
select id, account_id from video_jobs where id between @lowest and @highest order by id desc limit @row_limit;

-- name: KeysByHash :many
select k.id, k.account_id, k.name, coalesce(k.external_id, '') as external_id from api_keys k
where k.lookup_hash = any(@hashes::bytea[]) or k.id in (select h.key_id from key_hashes h where h.hash = any(@hashes::bytea[]))
limit @row_limit;
