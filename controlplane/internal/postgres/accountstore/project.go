package accountstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/etag"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/changestore"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/project"
	"modelgateway/shared/ident"
)

// Projects keeps the projects of accounts.
type Projects struct{ db *postgres.DB }

// NewProjects returns a store that uses db.
func NewProjects(db *postgres.DB) *Projects { return &Projects{db} }

var _ project.Store = (*Projects)(nil)

func (s *Projects) Create(ctx context.Context, n *project.New) (made project.Project, err error) {
	err = s.db.InRevision(ctx, "create project", func(q *sqlcgen.Queries, rev int64) error {
		row, err := q.InsertProject(ctx, sqlcgen.InsertProjectParams{
			ID:          n.ID,
			AccountID:   ident.UUID(n.AccountID),
			ExternalID:  n.ExternalID,
			Name:        n.Name,
			Description: n.Description,
			Metadata:    encodeMap(n.Metadata),
			Revision:    rev,
		})
		if errors.Is(err, pgx.ErrNoRows) { // the id or the external id exists already
			if row, err = q.GetProject(ctx, n.ID); errors.Is(err, pgx.ErrNoRows) {
				return project.ErrExternalIDTaken
			}
		}
		if err != nil {
			return err
		}
		if made, err = toProject(&row); err != nil || made.Rev != rev {
			return err
		}
		return changestore.InsertAudit(ctx, q, "project.create", made.ID, nil, made)
	})
	if postgres.Violates(err, "projects_account_id_fkey") {
		err = account.ErrNotFound
	}
	return made, err
}

func (s *Projects) Get(ctx context.Context, id project.ID) (project.Project, error) {
	row, err := s.db.Queries().GetProject(ctx, ident.UUID(id))
	if err != nil {
		return project.Project{}, postgres.NotFoundAs("get project", err, project.ErrNotFound)
	}
	return toProject(&row)
}

func (s *Projects) List(ctx context.Context, query project.Query) ([]project.Project, error) {
	rows, err := s.db.Queries().ListProjects(ctx, sqlcgen.ListProjectsParams{
		AccountID:  ident.UUID(query.AccountID),
		ExternalID: query.ExternalID,
		Part:       postgres.Containing(query.Text),
		Deleted:    query.Deleted,
		After:      ident.UUID(query.After),
		RowLimit:   int32(query.Limit),
	})
	if err != nil {
		return nil, postgres.Translate("list projects", err)
	}
	projects := make([]project.Project, len(rows))
	for i := range rows {
		if projects[i], err = toProject(&rows[i]); err != nil {
			return nil, err
		}
	}
	return projects, nil
}

// locked runs a change of a project that was not deleted.
func (s *Projects) locked(
	ctx context.Context,
	operation string,
	id project.ID,
	change func(q *sqlcgen.Queries, rev int64, before project.Project) error,
) error {
	return s.db.InRevision(ctx, operation, func(q *sqlcgen.Queries, rev int64) error {
		row, err := q.LockProject(ctx, ident.UUID(id))
		if err != nil {
			return postgres.NotFoundAs("lock project", err, project.ErrNotFound)
		}
		before, err := toProject(&row)
		if err != nil {
			return err
		}
		if before.DeletedAt != nil {
			return project.ErrNotFound
		}
		return change(q, rev, before)
	})
}

func (s *Projects) Update(
	ctx context.Context, id project.ID, change func(project.Project) (project.Project, bool, error),
) (after project.Project, err error) {
	err = s.locked(ctx, "update project", id, func(q *sqlcgen.Queries, rev int64, before project.Project) error {
		next, changed, err := change(before)
		if err != nil || !changed {
			after = before
			return err
		}
		row, err := q.UpdateProject(ctx, sqlcgen.UpdateProjectParams{
			ID:          ident.UUID(id),
			Name:        next.Name,
			Description: next.Description,
			Metadata:    encodeMap(next.Metadata),
			Revision:    rev,
		})
		if err != nil {
			return err
		}
		if after, err = toProject(&row); err != nil {
			return err
		}
		return changestore.InsertAudit(ctx, q, "project.update", id, before, after)
	})
	return after, err
}

func (s *Projects) Delete(ctx context.Context, id project.ID, match etag.Match) error {
	return s.locked(ctx, "delete project", id, func(q *sqlcgen.Queries, rev int64, before project.Project) error {
		if err := match.Check(before.Tag()); err != nil {
			return fmt.Errorf("delete project: %w", err)
		}

		// Changes are made one after the other, so no key comes into the project after this look.
		used, err := q.ProjectHasKeys(ctx, new(ident.UUID(id)))
		if err != nil {
			return err
		}
		if used {
			return project.ErrInUse
		}

		if err := q.RemoveProjectLimits(ctx, sqlcgen.RemoveProjectLimitsParams{ProjectID: new(ident.UUID(id)), Revision: rev}); err != nil {
			return err
		}
		row, err := q.DeleteProject(ctx, sqlcgen.DeleteProjectParams{ID: ident.UUID(id), Revision: rev})
		if err != nil {
			return err
		}
		after, err := toProject(&row)
		if err != nil {
			return err
		}
		return changestore.InsertAudit(ctx, q, "project.delete", id, before, after)
	})
}

func toProject(r *sqlcgen.Project) (project.Project, error) {
	p := project.Project{
		ID:          project.ID(r.ID),
		AccountID:   account.ID(r.AccountID),
		ExternalID:  postgres.Deref(r.ExternalID),
		Name:        r.Name,
		Description: r.Description,
		DeletedAt:   r.DeletedAt,
		Rev:         r.Revision,
		CreatedAt:   r.CreatedAt,
		UpdatedAt:   r.UpdatedAt,
	}
	if err := decode(r.Metadata, &p.Metadata); err != nil {
		return p, fmt.Errorf("postgres: read the metadata of %s: %w", p.ID, err)
	}
	return p, nil
}
