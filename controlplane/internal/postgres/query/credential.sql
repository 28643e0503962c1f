-- Credentials that their provider refuses, as live proxies report in heartbeats.

-- name: MarkRefusedCredentials :many
-- Marks the credentials that some proxy reports as refused, unless they are marked. One that could not be renewed is marked again
-- when it has no valid token left; of two reasons the first in the alphabet wins, which is the worse of these.
update provider_credentials c
set refused_at = now(), refused_reason = r.reason
from (
    select f.refusal ->> 'credential' as credential, min(f.refusal ->> 'reason')::text as reason
    from (
        select jsonb_array_elements(s.refused_credentials) as refusal
        from proxy_sessions s
        where s.state = 1 and s.valid_until >= clock_timestamp() and s.refused_credentials <> '[]'
    ) as f
    group by 1
) as r
where c.id = r.credential and (c.refused_at is null or c.refused_reason = 'source_failing' and r.reason <> 'source_failing')
returning c.id, c.provider_id, c.name, c.refused_reason;

-- name: ClearRefusedCredentials :many
-- Clears the credentials that no proxy reports as refused any more.
update provider_credentials c
set refused_at = null, refused_reason = ''
where c.refused_at is not null and not exists (
    select from proxy_sessions s
    where s.state = 1 and s.valid_until >= clock_timestamp() and s.refused_credentials @> jsonb_build_array(jsonb_build_object('credential', c.id)))
returning c.id, c.provider_id, c.name;

-- name: RefusedCredentials :many
-- With the proxies that report them.
select c.id, c.provider_id, c.name, c.refused_at::timestamptz as since, c.refused_reason,
    array(
        select s.name from proxy_sessions s
        where s.state = 1 and s.refused_credentials @> jsonb_build_array(jsonb_build_object('credential', c.id))
        order by s.name, s.id
    )::text[] as proxies
from provider_credentials c
where c.refused_at is not null
order by c.provider_id, c.name;
