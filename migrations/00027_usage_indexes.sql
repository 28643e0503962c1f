-- What a record costs to be settled is mostly what its indexes cost. The one by account goes: an account's records are
-- found by those of its keys, of which it has few.

-- +goose Up
drop index usage_records_account_idx;

-- +goose Down
create index usage_records_account_idx on usage_records (account_id, request_id);
