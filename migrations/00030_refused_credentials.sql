-- Credentials that their provider refuses: proxies report them with every renewal.

-- +goose Up

-- What the proxy of the session saw refused at its last renewal: objects with `credential` and `reason`.
alter table dataplane_sessions add column refused jsonb not null default '[]';

-- Since when some live proxy finds the credential refused, and why; null while none does.
alter table provider_credentials
    add column refused_at timestamptz,
    add column refused_reason text not null default '';

-- +goose Down
alter table provider_credentials drop column refused_reason, drop column refused_at;
alter table dataplane_sessions drop column refused;
