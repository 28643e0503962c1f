package spendlimit

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/etag"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/project"
	"modelgateway/controlplane/internal/propagation"
	"modelgateway/shared/ident"
	"modelgateway/shared/limit"
	"modelgateway/shared/money"
	"modelgateway/shared/wire"
)

// Query selects limits of an account, oldest first.
type Query struct {
	AccountID account.ID
	// ProjectID selects the limits of one project, KeyID those of one key.
	ProjectID *project.ID
	KeyID     *key.ID
	// Scope selects the limits of the account itself, of its projects, or of its keys; empty for all.
	Scope limit.Scope
	// After selects limits created after this one; the zero ID starts with the first.
	After ID
	Limit int
}

// Store stores limits. Each method is one transaction, which also writes the audit entry of a change. The changes are those that
// proxies have to apply; nil if they need not apply any.
type Store interface {
	// Create stores a limit. If its id exists already, it returns the stored limit.
	Create(ctx context.Context, l Limit) (Limit, *wire.KeyChange, error)
	Get(ctx context.Context, id ID) (Limit, error)
	List(ctx context.Context, q Query) ([]Limit, error)
	// Update stores the result of change, which may be called twice, and resizes the windows in which requests may still count.
	Update(ctx context.Context, id ID, change func(Limit) (Limit, error)) (Limit, *wire.KeyChange, error)
	// Remove ends a limit. Its windows keep their figures.
	Remove(ctx context.Context, id ID, match etag.Match) (*wire.KeyChange, error)
	// Reset forgives what was spent in the open windows. What running requests have reserved counts when they end. With the id of a
	// reset that was made before, it forgives nothing.
	Reset(ctx context.Context, id ID, reset ident.UUID) (Limit, *wire.KeyChange, error)
	// Windows returns the windows of a limit with ids below before, newest first.
	Windows(ctx context.Context, id ID, before wire.PoolID, limit int) ([]Window, error)
}

// Holdings asks the proxies for what running requests of an account reserve, by pool. complete is false if a proxy did not
// answer.
type Holdings interface {
	RunningByPool(ctx context.Context, account string) (running map[wire.PoolID]int64, complete bool)
}

// Config holds the dependencies of a Service.
type Config struct {
	Store     Store
	Announcer propagation.Announcer
	// Holdings may be nil: then Window.Reserved is the amount that the store reports.
	Holdings Holdings
	Log      *slog.Logger
	// ConfirmTimeout bounds how long a change waits for the proxies.
	ConfirmTimeout time.Duration
}

// Service manages limits.
type Service struct{ cfg Config }

// NewService returns a Service.
func NewService(cfg Config) *Service { return &Service{cfg} }

// Changed is the result of a change.
type Changed struct {
	Limit Limit
	// Change is the change that proxies have to apply; nil if they need not apply any.
	Change *wire.KeyChange
}

// Create creates a limit. It is idempotent by n.ID.
func (s *Service) Create(ctx context.Context, n New) (Changed, error) {
	if err := n.Validate(); err != nil {
		return Changed{}, err
	}
	l, change, err := s.cfg.Store.Create(ctx, Limit{
		ID:        ID(n.ID),
		AccountID: n.AccountID,
		ProjectID: n.ProjectID,
		KeyID:     n.KeyID,
		Name:      n.Name,
		Amount:    *n.Amount,
		Window:    n.Window,
		Models:    n.Models,
		Number:    1 + rand.Int64N(1<<34-1),
	})
	return s.announced(ctx, l, change, err)
}

// announced announces a change, and returns it. A proxy that does not confirm in time receives it with its next heartbeat.
func (s *Service) announced(ctx context.Context, l Limit, change *wire.KeyChange, err error) (Changed, error) {
	if err != nil || change == nil {
		return Changed{Limit: l}, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ConfirmTimeout)
	defer cancel()
	if _, err := s.cfg.Announcer.Announce(ctx, *change); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		s.cfg.Log.WarnContext(
			ctx,
			"announcing the change of a limit failed",
			"account_id", change.Account, "rev", change.Revision, "error", err,
		)
	}
	return Changed{l, change}, nil
}

// Get returns a limit with its current window.
func (s *Service) Get(ctx context.Context, id ID) (Limit, error) {
	l, err := s.cfg.Store.Get(ctx, id)
	if err != nil {
		return Limit{}, err
	}
	found := []Limit{l}
	s.askProxies(ctx, found)
	return found[0], nil
}

// List returns limits with their current windows.
func (s *Service) List(ctx context.Context, q Query) ([]Limit, error) {
	found, err := s.cfg.Store.List(ctx, q)
	if err != nil {
		return nil, err
	}
	s.askProxies(ctx, found)
	return found, nil
}

// askProxies replaces what proxies hold of the windows of an account by what their running requests reserve.
func (s *Service) askProxies(ctx context.Context, limits []Limit) {
	if s.cfg.Holdings == nil {
		return
	}

	var running map[wire.PoolID]int64
	for i := range limits {
		w := limits[i].Current
		if w == nil || w.Reserved == 0 {
			continue
		}
		if running == nil {
			var complete bool
			if running, complete = s.cfg.Holdings.RunningByPool(ctx, limits[i].AccountID.String()); !complete {
				return
			}
		}
		reserved := min(money.Nano(running[w.Pool]), w.Reserved)
		w.Left += w.Reserved - reserved
		w.Reserved = reserved
	}
}

// Patch changes a limit.
func (s *Service) Patch(ctx context.Context, id ID, p Patch) (Changed, error) {
	if err := p.Validate(); err != nil {
		return Changed{}, err
	}
	l, change, err := s.cfg.Store.Update(ctx, id, p.Apply)
	return s.announced(ctx, l, change, err)
}

// Remove ends a limit.
func (s *Service) Remove(ctx context.Context, id ID, match etag.Match) (*wire.KeyChange, error) {
	change, err := s.cfg.Store.Remove(ctx, id, match)
	removed, err := s.announced(ctx, Limit{}, change, err)
	return removed.Change, err
}

// Reset sets the spending of the open windows of a limit to zero. It is idempotent by the id of the reset.
func (s *Service) Reset(ctx context.Context, id ID, reset ident.UUID) (Changed, error) {
	l, change, err := s.cfg.Store.Reset(ctx, id, reset)
	return s.announced(ctx, l, change, err)
}

// Windows returns the windows of a limit with ids below before, newest first.
func (s *Service) Windows(ctx context.Context, id ID, before wire.PoolID, limit int) ([]Window, error) {
	return s.cfg.Store.Windows(ctx, id, before, limit)
}
