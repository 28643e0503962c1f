-- What a record costs to be settled is mostly what its indexes cost. Two of the four trees go: an account's records are
-- found by those of its keys, of which it has few, and those of a model by what is in which range of pages.

-- +goose Up
create index usage_records_models_idx on usage_records using brin (model text_bloom_ops) with (pages_per_range = 16, autosummarize = on);
drop index usage_records_model_idx;
drop index usage_records_account_idx;

-- +goose Down
create index usage_records_account_idx on usage_records (account_id, request_id);
create index usage_records_model_idx on usage_records (model, request_id);
drop index usage_records_models_idx;
