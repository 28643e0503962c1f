-- name: GetSetting :one
select value from settings where name = @name;

-- name: PutSetting :exec
insert into settings (name, value) values (@name, @value)
on conflict (name) do update set value = excluded.value, updated_at = now();

-- name: HasLedgerTransactions :one
select exists (select 1 from ledger_transactions);

-- name: ListProviders :many
select id, spec from providers order by id;

-- name: ListCredentials :many
select id, provider_id, name, kind, sealed, cipher_key_id, enabled, certificate_expires_at from provider_credentials order by id;

-- name: ListModels :many
-- The price in force is the newest version: versions are assigned after the revision was taken, times are not.
select m.id, m.spec, m.created_at, p.version, p.sheet
from models m
join lateral (
    select version, sheet from model_prices
    where model_id = m.id
    order by version desc
    limit 1
) p on true
where m.deleted_at is null
order by m.id;

-- name: ListRoutes :many
select id, model_id, spec from routes order by id;

-- name: UnusableModels :many
-- The enabled models without any enabled route to an enabled provider with a credential that the provider does not refuse. One
-- that cannot be renewed is usable while it still has a valid token.
select m.id from models m
where m.enabled and m.deleted_at is null and not exists (
    select from routes r
    join providers p on p.id = r.provider_id
    join provider_credentials c on c.provider_id = p.id
    where r.model_id = m.id and coalesce((r.spec ->> 'enabled')::boolean, true) and coalesce((p.spec ->> 'enabled')::boolean, true)
        and c.enabled and (c.refused_at is null or c.refused_reason = 'source_failing'))
order by m.id;

-- name: RefusingProviders :many
-- The enabled providers that refuse every enabled credential.
select p.id from providers p
join provider_credentials c on c.provider_id = p.id and c.enabled
where coalesce((p.spec ->> 'enabled')::boolean, true)
group by p.id
having bool_and(c.refused_at is not null and c.refused_reason <> 'source_failing')
order by p.id;

-- name: EnabledProviders :many
-- The enabled providers, their addresses and the certificates of their issuers.
select p.id, coalesce(p.spec ->> 'base_url', '')::text as base_url, coalesce(p.spec ->> 'ca', '')::text as ca from providers p
where coalesce((p.spec ->> 'enabled')::boolean, true)
order by p.id;

-- name: ClientCertificates :many
-- When the client certificates of enabled credentials of enabled providers expire.
select c.provider_id, c.name, c.certificate_expires_at::timestamptz as expires_at from provider_credentials c
join providers p on p.id = c.provider_id
where c.certificate_expires_at is not null and c.enabled and coalesce((p.spec ->> 'enabled')::boolean, true)
order by c.provider_id, c.name;

-- name: UnpricedTools :many
-- The models whose providers have reported calls of hosted tools since yesterday, and whose price in force has none for them.
select d.model, sum(d.server_tool_requests)::bigint as calls from usage_daily_models d
join lateral (select p.sheet from model_prices p where p.model_id = d.model order by p.version desc limit 1) as price on true
where d.used_on >= (clock_timestamp() at time zone 'utc')::date - 1 and d.server_tool_requests > 0
    and coalesce((price.sheet ->> 'server_tool')::bigint, 0) = 0 and not coalesce((price.sheet ->> 'free_server_tool')::boolean, false)
group by d.model
order by d.model;

-- name: ListGrants :many
select account_id, model_id from model_grants order by account_id, model_id;

-- name: PutProvider :exec
insert into providers (id, name, spec, revision) values (@id, @name, @spec, @revision)
on conflict (id) do update set name = excluded.name, spec = excluded.spec, revision = excluded.revision, updated_at = now();

-- name: RemoveProviders :exec
delete from providers where id = any(@ids::text[]);

-- name: InsertCredential :exec
insert into provider_credentials (id, provider_id, name, kind, sealed, cipher_key_id, enabled, certificate_expires_at)
values (@id, @provider_id, @name, @kind, @sealed, @cipher_key_id, @enabled, sqlc.narg('certificate_expires_at'));

-- name: RemoveCredentials :exec
delete from provider_credentials where id = any(@ids::text[]);

-- name: PutModel :exec
insert into models (id, type, enabled, public, spec, revision) values (@id, @type, @enabled, @public, @spec, @revision)
on conflict (id) do update set type = excluded.type, enabled = excluded.enabled, public = excluded.public,
    spec = excluded.spec, revision = excluded.revision, updated_at = now(), deleted_at = null;

-- name: DeleteModels :exec
-- Usage and receipts refer to models and their prices, so the rows stay.
update models set deleted_at = now(), revision = @revision where id = any(@ids::text[]);

-- name: InsertPrice :exec
insert into model_prices (model_id, sheet, effective_from) values (@model_id, @sheet, clock_timestamp());

-- name: PutRoute :exec
insert into routes (id, model_id, provider_id, spec) values (@id, @model_id, @provider_id, @spec)
on conflict (id) do update set model_id = excluded.model_id, provider_id = excluded.provider_id, spec = excluded.spec;

-- name: ListProviderPrices :many
-- The provider's price in force of each route that has one: the newest version.
select r.id as route_id, r.model_id, p.version, p.sheet
from routes r
join lateral (
    select version, sheet from provider_prices
    where route_id = r.id
    order by version desc
    limit 1
) p on p.sheet is not null
order by r.id;

-- name: InsertProviderPrice :exec
insert into provider_prices (route_id, sheet, effective_from) values (@route_id, @sheet, clock_timestamp());

-- name: RemoveRoutes :exec
delete from routes where id = any(@ids::text[]);

-- name: RemoveGrants :exec
delete from model_grants where account_id = @account_id;

-- name: InsertGrants :exec
insert into model_grants (account_id, model_id) select @account_id::uuid, unnest(@model_ids::text[]);

-- name: InsertOutbox :exec
insert into outbox (subject, payload) values (@subject, @payload);

-- name: NotifyOutbox :exec
select pg_notify('mgw_outbox', '');

-- name: TryLockOutbox :one
-- One publisher at a time over all replicas, until the transaction ends.
select pg_try_advisory_xact_lock(7310001);

-- name: OldestOutbox :many
-- Ids are assigned after the revision was taken, so their order is the order of commits.
select id, subject, payload from outbox order by id limit @row_limit;

-- name: RemoveOutbox :exec
delete from outbox where id <= @upto;

-- name: OutboxAge :one
select coalesce(extract(epoch from now() - min(created_at)), 0)::double precision as seconds from outbox;

-- name: OutboxHasRows :one
select exists (select 1 from outbox);

-- name: ListScheduledPrices :many
select id, model_id, sheet, effective_from, created_at, (effective_from <= clock_timestamp())::boolean as due
from scheduled_prices
order by model_id, effective_from, id;

-- name: AnyPriceDue :one
select exists (select 1 from scheduled_prices where effective_from <= clock_timestamp());

-- name: InsertScheduledPrice :exec
insert into scheduled_prices (id, model_id, sheet, effective_from) values (@id, @model_id, @sheet, @effective_from)
on conflict (id) do nothing;

-- name: RemoveScheduledPrices :exec
delete from scheduled_prices where id = any(@ids::uuid[]);

-- name: RemoveScheduledPricesOf :exec
delete from scheduled_prices where model_id = any(@model_ids::text[]);

-- name: ListPrices :many
-- Newest first.
select version, sheet, effective_from, created_at from model_prices where model_id = @model_id order by version desc;

-- name: EnableCredential :exec
update provider_credentials set enabled = @enabled where id = @id;

-- name: ActiveAccountsByModel :many
select model, count(distinct account_id)::bigint as accounts from usage_daily
where used_on >= @since and model = any(@models::text[])
group by model;

-- name: ActiveAccounts :one
select count(distinct account_id)::bigint from usage_daily where used_on >= @since and model = any(@models::text[]);

-- name: ModelTraffic :many
select u.account_id, a.name, array_agg(distinct u.model order by u.model)::text[] as models,
    sum(u.requests)::bigint as requests, sum(u.cost)::bigint as cost
from usage_daily u join accounts a on a.id = u.account_id
where u.used_on >= @since and u.model = any(@models::text[])
group by u.account_id, a.name
order by cost desc, u.account_id
limit @row_limit;
