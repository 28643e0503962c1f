-- Projects of accounts.

-- name: InsertProject :one
-- Returns no row if the id or the external id exists already.
insert into projects (id, account_id, external_id, name, description, metadata, revision)
values (@id, @account_id, nullif(@external_id::text, ''), @name, @description, @metadata, @revision)
on conflict do nothing
returning *;

-- name: GetProject :one
select * from projects where id = @id;

-- name: LockProject :one
select * from projects where id = @id for update;

-- name: ListProjects :many
select * from projects
where account_id = @account_id and id > @after and (@external_id::text = '' or external_id = @external_id)
    and (@part::text = '' or name ilike @part or external_id ilike @part) and (@deleted::boolean or deleted_at is null)
order by id
limit @row_limit;

-- name: UpdateProject :one
update projects set name = @name, description = @description, metadata = @metadata, revision = @revision, updated_at = now() where id = @id
returning *;

-- name: DeleteProject :one
update projects set deleted_at = now(), revision = @revision, updated_at = now() where id = @id
returning *;

-- name: ProjectHasKeys :one
-- Whether a key that is not revoked is in a project.
select exists (select from api_keys where project_id = @id and revoked_at is null);

-- name: DeletedProjectOfKeys :one
-- Whether one of the keys is in a project that was deleted.
select exists (
    select from api_keys k join projects p on p.id = k.project_id where k.id = any(@key_ids::uuid[]) and p.deleted_at is not null
);
