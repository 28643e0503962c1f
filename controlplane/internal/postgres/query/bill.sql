-- Bills of providers, and their comparison with usage records. Package billstore copies the lines and the differences, and reads the
-- pairs of a comparison one after another, since there may be millions.

-- name: BillContext :one
select usage_kept_from()::date as kept_from, exists (select from providers p where p.id = @provider)::boolean as known;

-- name: UnknownCredential :one
-- The first of the names that is of no credential of a provider: neither in the catalog nor in the usage records of the days of a bill.
select coalesce(min(n.name), '')::text as name
from (select unnest(@names::text[]) as name) as n
where not exists (select from provider_credentials c where c.provider_id = @provider::text and c.name = n.name)
    and not exists (
        select from usage_records u
        where u.request_id >= uuid_floor((@first_day::date) - interval '3 days') and u.request_id < uuid_floor((@last_day::date) + interval '3 days')
            and u.provider = @provider and u.credential = n.name);

-- name: InsertBill :execrows
insert into provider_bills (id, sha256, name, provider, format, credential, time_zone, unit, currency, first_day, last_day, ends_at, lines,
    with_request, billed, other, step, imported_at, imported_by)
values (@id, @sha256, @name, @provider, @format, @credential, @time_zone, @unit, @currency, @first_day, @last_day, @ends_at, @lines,
    @with_request, @billed, @other, @step, @imported_at, @imported_by)
on conflict (sha256) do nothing;

-- name: GetBill :one
select * from provider_bills where id = @id;

-- name: FindBill :one
select * from provider_bills where sha256 = @sha256;

-- name: ListBills :many
select * from provider_bills where id < @before order by id desc limit @row_limit;

-- name: DeleteBill :execrows
delete from provider_bills where id = @id;

-- name: DeleteBillLines :exec
delete from provider_bill_lines where bill_id = @bill_id;

-- name: UnfinishedBills :many
-- The ids below a bound of bills that have lines and do not exist. Each step of the recursion reads one entry of the index.
with recursive ids as (
    (select l.bill_id from provider_bill_lines l where l.bill_id < @before::uuid order by l.bill_id limit 1)
    union all
    select (select l.bill_id from provider_bill_lines l where l.bill_id > ids.bill_id and l.bill_id < @before order by l.bill_id limit 1)
    from ids where ids.bill_id is not null
)
select ids.bill_id::uuid as id from ids
where ids.bill_id is not null and not exists (select from provider_bills b where b.id = ids.bill_id);

-- name: AcceptBill :execrows
update provider_bills set accepted_at = clock_timestamp(), accepted_by = @accepted_by, accepted_as = @accepted_as where id = @id;

-- name: SetBillComparison :execrows
update provider_bills
set compared_at = clock_timestamp(), compared_billed = @billed, recorded = @recorded, calls = @calls, open_amount = @open_amount,
    by_model = @by_model, by_credential = @by_credential, parts = @parts
where id = @id;

-- name: DeleteBillDifferences :exec
delete from provider_bill_differences where bill_id = @bill_id;

-- name: ListBillDifferences :many
select * from provider_bill_differences d
where d.bill_id = @bill_id
    and (@after_number::bigint = 0 or d.open_amount < @after_open::bigint
        or (d.open_amount = @after_open::bigint and d.number > @after_number::bigint))
    and (@kind::text = '' or d.parts @> jsonb_build_array(jsonb_build_object('kind', @kind::text)))
    and (not @only_open::boolean or d.open_amount > 0)
    and (@model::text = '' or d.model = @model::text) and (@credential::text = '' or d.credential = @credential::text)
    and (sqlc.narg('day')::date is null or d.day = sqlc.narg('day')::date)
order by d.open_amount desc, d.number
limit @row_limit;

-- name: GetBillDifference :one
select * from provider_bill_differences where bill_id = @bill_id and number = @number;

-- name: BillsDue :many
-- A bill of which usage records were dropped keeps its comparison.
select id from provider_bills
where accepted_at is null and (compared_at is null or compared_at < @since::timestamptz) and first_day >= usage_kept_from()
order by id;

-- name: OverdueBills :one
-- More than one in a thousand must be open.
select count(*) as bills, coalesce(max(open_amount::double precision / greatest(abs(compared_billed), abs(recorded), 1)), 0)::double precision as share
from provider_bills
where accepted_at is null and imported_at < @before::timestamptz and open_amount > greatest(abs(compared_billed), abs(recorded)) / 1000;

-- name: RouteModels :many
-- The provider's names of models, by route.
select id, (spec ->> 'upstream_model')::text as model from routes where provider_id = @provider and spec ? 'upstream_model';
