package windowstore

import (
	"context"
	"fmt"
	"slices"

	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/shared/ident"
)

// Owner is who a request is from. Project is zero if the key was in none.
type Owner struct{ Account, Project, Key ident.UUID }

// Owners has the owners of the windows and projects that usage events name.
type Owners struct {
	windows  map[int64]*sqlcgen.WindowOwnersRow
	projects map[ident.UUID]ident.UUID
}

// FindOwners reads the owners of windows and projects.
func FindOwners(ctx context.Context, q *sqlcgen.Queries, windows []int64, projects []ident.UUID) (*Owners, error) {
	o := &Owners{map[int64]*sqlcgen.WindowOwnersRow{}, map[ident.UUID]ident.UUID{}}
	if len(windows) > 0 {
		rows, err := q.WindowOwners(ctx, windows)
		if err != nil {
			return nil, fmt.Errorf("find windows: %w", err)
		}
		for i := range rows {
			o.windows[rows[i].ID] = &rows[i]
		}
	}

	if len(projects) > 0 {
		rows, err := q.ProjectsOfEvents(ctx, projects)
		if err != nil {
			return nil, fmt.Errorf("find projects: %w", err)
		}
		for _, r := range rows {
			o.projects[r.ID] = r.AccountID
		}
	}

	return o, nil
}

// Foreign reports whether the project is one of another account.
func (o *Owners) Foreign(of Owner) bool {
	owner, known := o.projects[of.Project]
	return known && owner != of.Account
}

// Own reports whether windows are different ones of limits of the account, the project or the key.
func (o *Owners) Own(windows []int64, of Owner) bool {
	for i, pool := range windows {
		w, found := o.windows[pool]
		if !found || w.AccountID != of.Account || w.KeyID != nil && *w.KeyID != of.Key ||
			w.ProjectID != nil && *w.ProjectID != of.Project || slices.Contains(windows[:i], pool) {
			return false
		}
	}
	return true
}
