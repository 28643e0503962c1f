-- Webhooks: events are written with their cause; then deliveries are created for the
-- subscribed endpoints, and any replica claims and sends them.

-- name: InsertEvents :exec
-- Inserts several events in one statement.
insert into webhook_events (id, type, account_id, key_id, facts, deduplication_key)
select unnest(@ids::uuid[]), unnest(@types::text[]), nullif(unnest(@account_ids::uuid[]), '00000000-0000-0000-0000-000000000000'),
    nullif(unnest(@key_ids::uuid[]), '00000000-0000-0000-0000-000000000000'), unnest(@facts::jsonb[]), nullif(unnest(@deduplication_keys::text[]), '')
on conflict do nothing;

-- name: EventExists :one
select exists (select from webhook_events where deduplication_key = @deduplication_key::text)::boolean as written;

-- name: ClientsGone :many
-- The accounts with requests of a day whose client left before the end of the answer.
select account_id, sum(requests)::bigint as requests, sum(client_gone)::bigint as client_gone
from usage_daily
where used_on = @day::date
group by account_id having sum(client_gone) > 0
order by account_id;

-- name: SetRaisedAlarms :exec
update pools p
set raised_alarms = n.raised_alarms
from (select unnest(@ids::bigint[]) as id, unnest(@raised_alarms::smallint[]) as raised_alarms) as n
where p.id = n.id;

-- name: AccountAlerts :one
select low_balance_threshold, limit_alert_percent from pools where account_id = @account_id::uuid and kind = 1 and key_id is null;

-- name: LockAlertPools :many
-- Locked in the order of ids, as in all transactions.
select id from pools
where (account_id = @account_id::uuid and kind = 1 and key_id is null)
    or (kind = 2 and key_id = any (array(select k.id from api_keys k where k.account_id = @account_id::uuid)))
order by id
for no key update;

-- name: SetAlerts :exec
update pools
set low_balance_threshold = case when kind = 1 then sqlc.narg('low_balance_threshold')::bigint end, limit_alert_percent = @limit_alert_percent
where id = any(@ids::bigint[]);

-- name: InsertEndpoint :one
-- Returns no row if the id exists already.
insert into webhook_endpoints (id, url, description, event_types, enabled)
values (@id, @url, @description, @event_types, @enabled)
on conflict do nothing
returning *;

-- name: InsertWebhookSecret :execrows
insert into webhook_secrets (id, endpoint_id, sealed, cipher_key_id) values (@id, @endpoint_id, @sealed, @cipher_key_id)
on conflict do nothing;

-- name: FirstWebhookSecret :one
select * from webhook_secrets where endpoint_id = @endpoint_id order by id limit 1;

-- name: GetWebhookSecret :one
select * from webhook_secrets where id = @id and endpoint_id = @endpoint_id;

-- name: ExpireWebhookSecrets :exec
-- Deletes expired secrets. A secret that already expires earlier keeps its time of expiry.
with gone as (
    delete from webhook_secrets w where w.endpoint_id = @endpoint_id and w.expires_at <= now()
)
update webhook_secrets s
set expires_at = least(s.expires_at, now() + make_interval(secs => @overlap_seconds::float8))
where s.endpoint_id = @endpoint_id and s.id <> @keep and (s.expires_at is null or s.expires_at > now());

-- name: SecretsOfEndpoints :many
-- The newest first.
select * from webhook_secrets
where endpoint_id = any(@endpoint_ids::uuid[]) and (expires_at is null or expires_at > now())
order by endpoint_id, created_at desc, id desc;

-- name: GetEndpoint :one
select * from webhook_endpoints where id = @id;

-- name: LockEndpoint :one
select * from webhook_endpoints where id = @id for update;

-- name: ListEndpoints :many
select * from webhook_endpoints where id > @after order by id limit @row_limit;

-- name: UpdateEndpoint :one
-- With reset, the failure count is set to zero.
update webhook_endpoints
set url = @url, description = @description, event_types = @event_types, enabled = @enabled, disabled_reason = @disabled_reason,
    failures = case when @reset::boolean then 0 else failures end,
    failing_since = case when @reset::boolean then null else failing_since end,
    paused_until = case when @reset::boolean then null else paused_until end,
    updated_at = now()
where id = @id
returning *;

-- name: DeleteEndpoint :exec
delete from webhook_endpoints where id = @id;

-- name: InsertTestEvent :exec
insert into webhook_events (id, type, facts, endpoint_id) values (@id, @type, '{}', @endpoint_id)
on conflict do nothing;

-- name: LockNewEvents :many
select * from webhook_events where body is null order by id limit @row_limit for update skip locked;

-- name: EventSubjects :many
-- The accounts and keys of events, for their bodies. Charges are read from the ledger, which has a few rows for each batch
-- of usage, whatever the number of requests, up to the time of the event: a body that is written later has the charges that
-- led to its balance.
select e.id, coalesce(a.external_id, '') as account_external_id, coalesce(k.external_id, '') as key_external_id, coalesce(k.name, '') as key_name,
    coalesce(c.hour, 0)::bigint as hour, coalesce(c.day, 0)::bigint as day
from webhook_events e
left join accounts a on a.id = e.account_id
left join api_keys k on k.id = e.key_id
left join lateral (
    select -sum(l.amount) as day, -sum(l.amount) filter (where l.transaction_id >= uuid_floor(e.created_at - interval '1 hour')) as hour
    from ledger_entries l
    join ledger_transactions t on t.id = l.transaction_id and t.kind = 'usage' and t.created_at <= e.created_at
    where l.account_id = e.account_id and l.transaction_id >= uuid_floor(e.created_at - interval '1 day')
) as c on e.type like 'account.%'
where e.id = any(@ids::uuid[]);

-- name: SetEventBody :exec
update webhook_events set body = @body::bytea where id = @id;

-- name: InsertDeliveries :exec
-- One delivery for each enabled endpoint that subscribes to the type of the event, or for the endpoint of a test event.
insert into webhook_deliveries (id, event_id, endpoint_id)
select gen_delivery_id(), e.id, w.id
from webhook_events e
join webhook_endpoints w on case when e.endpoint_id is null then w.enabled and (w.event_types = '{}' or e.type = any(w.event_types)) else w.id = e.endpoint_id end
where e.id = any(@ids::uuid[])
on conflict do nothing;

-- name: ClaimDeliveries :many
-- An endpoint has at most per_endpoint claims at a time, and a failing endpoint at most one.
with due as (
    select d.id
    from webhook_endpoints e
    cross join lateral (
        select w.id, w.next_attempt_at from webhook_deliveries w
        where w.endpoint_id = e.id and w.state = 'pending' and w.next_attempt_at <= clock_timestamp()
            and (w.claimed_until is null or w.claimed_until < clock_timestamp())
        order by w.next_attempt_at
        limit greatest(case when e.failures > 0 then 1 else @per_endpoint::bigint end - (
            select count(*) from webhook_deliveries f where f.endpoint_id = e.id and f.claimed_until >= clock_timestamp()), 0)
        for update skip locked
    ) as d
    where e.enabled and (e.paused_until is null or e.paused_until <= clock_timestamp())
    order by d.next_attempt_at
    limit @row_limit
), claimed as (
    update webhook_deliveries d
    set claim_number = d.claim_number + 1, claimed_until = clock_timestamp() + make_interval(secs => @claim_seconds::float8)
    from due
    where d.id = due.id
    returning d.id, d.claim_number, d.attempts_since_request, d.endpoint_id, d.event_id
)
select c.id, c.claim_number, c.attempts_since_request, c.endpoint_id, c.event_id, v.body, e.url, e.failures,
    coalesce(extract(epoch from clock_timestamp() - e.failing_since), 0)::float8 as failing_seconds
from claimed c
join webhook_events v on v.id = c.event_id
join webhook_endpoints e on e.id = c.endpoint_id;

-- name: FinishDelivery :one
-- Returns no row if the delivery was claimed again since.
update webhook_deliveries
set state = @state, attempts = attempts + 1, attempts_since_request = attempts_since_request + 1, claimed_until = null,
    next_attempt_at = clock_timestamp() + make_interval(secs => @pause_seconds::float8),
    ended_at = case when @state::text = 'pending' then null else clock_timestamp() end
where id = @id and claim_number = @claim_number and state = 'pending'
returning attempts;

-- name: ReleaseDelivery :exec
update webhook_deliveries set claimed_until = null where id = @id and claim_number = @claim_number and state = 'pending';

-- name: InsertAttempt :exec
insert into webhook_attempts (delivery_id, number, started_at, status, latency_ms, error, excerpt)
values (@delivery_id, @number, @started_at, @status, @latency_ms, @error, @excerpt);

-- name: ResetEndpointFailures :exec
update webhook_endpoints
set failures = 0, failing_since = null, paused_until = null
where id = @id and (failures > 0 or paused_until is not null);

-- name: CountEndpointFailure :exec
update webhook_endpoints
set failures = least(failures + 1, 1000000), failing_since = coalesce(failing_since, clock_timestamp()),
    paused_until = clock_timestamp() + make_interval(secs => @pause_seconds::float8)
where id = @id;

-- name: DisableEndpoint :one
-- Returns no row if it is disabled already.
update webhook_endpoints
set enabled = false, disabled_reason = @reason, updated_at = now()
where id = @id and enabled
returning *;

-- name: Backlog :one
select count(*) as waiting, coalesce(extract(epoch from clock_timestamp() - min(v.created_at)), 0)::float8 as oldest_seconds
from webhook_deliveries d
join webhook_endpoints e on e.id = d.endpoint_id and e.enabled
join webhook_events v on v.id = d.event_id
where d.state = 'pending';

-- name: CountEndpoints :many
-- The number of endpoints by state; failed: disabled by the control plane.
select (case when enabled then 'enabled' when disabled_reason <> '' then 'failed' else 'disabled' end)::text as state, count(*) as endpoints
from webhook_endpoints
group by 1;

-- name: ExpireEvents :execrows
delete from webhook_events v
where v.id < uuid_floor(now() - make_interval(secs => @age_seconds::float8)) and v.body is not null
    and not exists (select from webhook_deliveries d where d.event_id = v.id and d.state = 'pending');

-- name: ListDeliveries :many
select d.id, d.event_id, d.endpoint_id, d.state, d.attempts, d.next_attempt_at, d.created_at, d.ended_at, v.type,
    coalesce(a.number, 0)::integer as number, coalesce(a.started_at, d.created_at) as started_at, coalesce(a.status, 0)::integer as status,
    coalesce(a.latency_ms, 0)::bigint as latency_ms, coalesce(a.error, '') as error, coalesce(a.excerpt, '') as excerpt
from webhook_deliveries d
join webhook_events v on v.id = d.event_id
left join webhook_attempts a on a.delivery_id = d.id and a.number = d.attempts
where d.endpoint_id = @endpoint_id and (@state::text = '' or d.state = @state) and (@first_page::boolean or d.id < @before)
order by d.id desc
limit @row_limit;

-- name: GetDelivery :one
select d.id, d.event_id, d.endpoint_id, d.state, d.attempts, d.next_attempt_at, d.created_at, d.ended_at, v.type, v.body
from webhook_deliveries d
join webhook_events v on v.id = d.event_id
where d.id = @id;

-- name: ListAttempts :many
select * from webhook_attempts where delivery_id = @delivery_id order by number;

-- name: RedeliverOne :execrows
-- A claim that is running becomes invalid.
update webhook_deliveries
set state = 'pending', attempts_since_request = 0, claim_number = claim_number + 1, claimed_until = null, next_attempt_at = clock_timestamp(), ended_at = null
where id = @id;

-- name: RedeliverFailed :execrows
update webhook_deliveries
set state = 'pending', attempts_since_request = 0, claim_number = claim_number + 1, claimed_until = null, next_attempt_at = clock_timestamp(), ended_at = null
where endpoint_id = @endpoint_id and state = 'failed' and created_at >= @since;

-- name: EventHorizon :one
-- The time before which no other event can appear: running transactions and events without a body are later.
select least(
    clock_timestamp(),
    oldest_writer(),
    (select min(e.created_at) from webhook_events e where e.body is null)
)::timestamptz as horizon;

-- name: ListEventsBefore :many
-- Newest first.
select * from webhook_events
where body is not null and (created_at, id) < (@before_time::timestamptz, @before_id::uuid)
    and (@type::text = '' or type = @type)
    and (sqlc.narg('account_id')::uuid is null or account_id = sqlc.narg('account_id'))
order by created_at desc, id desc
limit @row_limit;

-- name: ListEventsAfter :many
-- Oldest first.
select * from webhook_events
where body is not null and (created_at, id) > (@after_time::timestamptz, @after_id::uuid) and created_at < @horizon
    and (@type::text = '' or type = @type)
    and (sqlc.narg('account_id')::uuid is null or account_id = sqlc.narg('account_id'))
order by created_at, id
limit @row_limit;

-- name: DeliveriesOfEvents :many
select d.id, d.event_id, d.endpoint_id, d.state, d.attempts, d.next_attempt_at, d.created_at, d.ended_at, v.type,
    coalesce(a.number, 0)::integer as number, coalesce(a.started_at, d.created_at) as started_at, coalesce(a.status, 0)::integer as status,
    coalesce(a.latency_ms, 0)::bigint as latency_ms, coalesce(a.error, '') as error, coalesce(a.excerpt, '') as excerpt
from webhook_deliveries d
join webhook_events v on v.id = d.event_id
left join webhook_attempts a on a.delivery_id = d.id and a.number = d.attempts
where d.event_id = any(@event_ids::uuid[])
order by d.event_id, d.id;
