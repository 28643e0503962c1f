-- name: ListAccountPools :many
-- The windows of limits are left out, except some. over is the part of a raise that is over, and that the next decision takes away.
select sqlc.embed(p), (case when p.raised_until <= clock_timestamp() then p.raised_by else 0 end)::bigint as over
from pools p
where p.id > @after and p.id = any(array(
    select a.id from pools a where a.account_id = @account_id and a.key_id is null and a.limit_number is null
    union all
    select l.id from api_keys k join pools l on l.key_id = k.id where k.account_id = @account_id
    union all
    select w.id from pools w where w.id = any(@windows::bigint[]) and w.account_id = @account_id
))
order by p.id
limit @row_limit;

-- name: ListPoolLeases :many
select l.*, s.name, s.state, (s.valid_until < clock_timestamp())::boolean as expired
from leases l
join proxy_sessions s on s.id = l.session_id
where l.pool_id = any(@pool_ids::bigint[]) and l.granted - l.returned - l.charged > 0
order by l.pool_id, l.session_id;
