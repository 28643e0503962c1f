-- +goose Up

-- The entity tag of a kept answer, which is not in its body.
alter table idempotency_keys add column etag text not null default '';

-- keys_added: hashes that proxies have asked for in vain may be known now.
alter table key_changes drop constraint key_changes_kind_check;
alter table key_changes add constraint key_changes_kind_check
    check (kind in ('key_revoked', 'key_updated', 'account_updated', 'keys_added')) not valid;

-- +goose Down
delete from key_changes where kind = 'keys_added';
alter table key_changes drop constraint key_changes_kind_check;
alter table key_changes add constraint key_changes_kind_check
    check (kind in ('key_revoked', 'key_updated', 'account_updated')) not valid;
alter table idempotency_keys drop column etag;
