-- What a record costs to be settled is mostly what its indexes cost. The one by account goes: an account's records are
-- found by those of its keys, of which it has few.

-- +goose Up
-- Not concurrently: a partitioned table's cannot be dropped so.
-- squawk-ignore require-concurrent-index-deletion
drop index usage_records_account_idx;

-- +goose Down
create index usage_records_account_idx on usage_records (account_id, request_id);
