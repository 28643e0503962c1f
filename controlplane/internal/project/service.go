package project

import (
	"context"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/etag"
)

// Query selects projects of an account, oldest first.
type Query struct {
	AccountID account.ID
	// ExternalID selects the project with this external id; empty means all.
	ExternalID string
	// Text selects projects whose name or external id contains it, in any case; empty means all.
	Text string
	// Deleted includes projects that were deleted.
	Deleted bool
	// After selects projects created after this one; the zero ID starts with the first.
	After ID
	Limit int
}

// Store stores projects. Each method is one transaction, which also writes the audit entry of a change.
type Store interface {
	// Create stores a project. If its id exists already, it returns the stored project.
	Create(ctx context.Context, n *New) (Project, error)
	Get(ctx context.Context, id ID) (Project, error)
	List(ctx context.Context, q Query) ([]Project, error)
	// Update locks a project that was not deleted and stores the result of change, which may be called twice.
	Update(ctx context.Context, id ID, change func(Project) (after Project, changed bool, err error)) (Project, error)
	// Delete deletes a project with its limits, unless a key that is not revoked is in it.
	Delete(ctx context.Context, id ID, match etag.Match) error
}

// Service manages projects. Proxies know no more of a project than its id and its limits, which the records of its keys have. So
// they need not be told of a change of a project.
type Service struct{ store Store }

// NewService returns a Service.
func NewService(store Store) *Service { return &Service{store} }

// Create creates a project. It is idempotent by n.ID.
func (s *Service) Create(ctx context.Context, n New) (Project, error) {
	if err := n.Validate(); err != nil {
		return Project{}, err
	}
	return s.store.Create(ctx, &n)
}

// Get returns a project, also one that was deleted, or ErrNotFound.
func (s *Service) Get(ctx context.Context, id ID) (Project, error) { return s.store.Get(ctx, id) }

// List returns projects.
func (s *Service) List(ctx context.Context, q Query) ([]Project, error) { return s.store.List(ctx, q) }

// Patch changes a project.
func (s *Service) Patch(ctx context.Context, id ID, p Patch) (Project, error) {
	if err := p.Validate(); err != nil {
		return Project{}, err
	}
	return s.store.Update(ctx, id, p.Apply)
}

// Delete deletes a project without keys that are not revoked.
func (s *Service) Delete(ctx context.Context, id ID, match etag.Match) error {
	return s.store.Delete(ctx, id, match)
}
