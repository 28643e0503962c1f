-- Each part has an index, and is planned for its values.

-- name: SearchAccounts :many
select a.id, a.name, coalesce(a.external_id, '') as external_id
from accounts a
where lower(a.name) like @part or a.external_id like @exact_part
order by a.id
limit @row_limit;

-- name: SearchInsideAccounts :many
-- Accounts with a text of at least three characters anywhere in the name.
select a.id, a.name, coalesce(a.external_id, '') as external_id
from accounts a
where trigrams(lower(a.name)) @> trigrams(@inside::text) and position(@inside::text in lower(a.name)) > 0
order by a.id
limit @row_limit;

-- name: SearchInsideKeys :many
select k.id, k.account_id, k.name, coalesce(k.external_id, '') as external_id
from api_keys k
where trigrams(lower(k.name)) @> trigrams(@inside::text) and position(@inside::text in lower(k.name)) > 0
order by k.id
limit @row_limit;

-- name: SearchProjects :many
select p.id, p.account_id, p.name, coalesce(p.external_id, '') as external_id
from projects p
where lower(p.name) like @part or p.external_id like @exact_part
order by p.id
limit @row_limit;

-- name: SearchInsideProjects :many
select p.id, p.account_id, p.name, coalesce(p.external_id, '') as external_id
from projects p
where trigrams(lower(p.name)) @> trigrams(@inside::text) and position(@inside::text in lower(p.name)) > 0
order by p.id
limit @row_limit;

-- name: SearchReference :many
-- The accounts with a payment of this reference.
select distinct a.id, a.name, coalesce(a.external_id, '') as external_id
from ledger_transactions t
join ledger_entries e on e.transaction_id = t.id and e.ledger_account = 'customer'
join accounts a on a.id = e.account_id
where t.kind in ('payment', 'promotion', 'refund', 'correction') and t.reference = @reference
order by a.id
limit @row_limit;

-- name: SearchRequestEndings :many
-- The newest requests whose ids end with a text. There is no index of endings, so it looks at some of the newest.
select r.request_id, r.account_id, r.model
from (select n.request_id from usage_records n order by n.request_id desc limit 50000) as newest
join usage_records r on r.request_id = newest.request_id
where right(newest.request_id::text, length(@ending::text)) = @ending
order by r.request_id desc
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
select id from models where deleted_at is null and position(@inside::text in lower(id)) > 0 order by id limit @row_limit;

-- name: SearchProviders :many
select id from providers where position(@inside::text in lower(id)) > 0 order by id limit @row_limit;

-- name: AccountsInRange :many
select id, name, coalesce(external_id, '') as external_id from accounts where id between @lowest and @highest order by id limit @row_limit;

-- name: KeysInRange :many
select id, account_id, name, coalesce(external_id, '') as external_id from api_keys where id between @lowest and @highest order by id limit @row_limit;

-- name: ProjectsInRange :many
select id, account_id, name, coalesce(external_id, '') as external_id from projects where id between @lowest and @highest order by id limit @row_limit;

-- name: RequestsInRange :many
select request_id, account_id, model from usage_records where request_id between @lowest and @highest order by request_id desc limit @row_limit;

-- name: VideoJobsInRange :many
select id, account_id from video_jobs where id between @lowest and @highest order by id desc limit @row_limit;

-- name: KeysByHash :many
select k.id, k.account_id, k.name, coalesce(k.external_id, '') as external_id from api_keys k
where k.lookup_hash = any(@hashes::bytea[]) or k.id in (select h.key_id from key_hashes h where h.hash = any(@hashes::bytea[]))
limit @row_limit;
