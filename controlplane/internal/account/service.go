package account

import (
	"context"
	"log/slog"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"modelgateway/controlplane/internal/propagation"
	"modelgateway/shared/money"
	"modelgateway/shared/price"
	"modelgateway/shared/wire"
)

// Sort is an order of accounts.
type Sort string

// The orders: oldest, lowest balance, highest cost of seven days, and fewest hours left first. Accounts without charges
// have no hours and are last.
const (
	ByCreation  Sort = "created"
	ByBalance   Sort = "balance"
	ByCost      Sort = "cost_7d"
	ByHoursLeft Sort = "hours_left"
)

// Query selects accounts.
type Query struct {
	// Text selects accounts whose name or external id contains it, in any case; empty means all.
	Text string
	// Status is empty for all.
	Status Status
	// Sort is empty for ByCreation.
	Sort Sort
	// AfterRank is the Rank of the account After. ByCreation has none.
	AfterRank int64
	// ExternalID selects the account with this external id; empty means all.
	ExternalID string
	// After selects accounts after this one; the zero ID starts with the first.
	After ID
	// Limit is the maximum number of accounts.
	Limit int
}

// Rank returns the figure by which an account is sorted: the lowest is first.
func (s Sort) Rank(a *Account) int64 {
	switch s {
	case ByBalance:
		return int64(a.Balance.Balance)
	case ByCost:
		return -int64(a.Figures.Cost7d)
	case ByHoursLeft:
		if a.Figures.HoursLeft == nil {
			return 9e18
		}
		return *a.Figures.HoursLeft
	default:
		return 0
	}
}

// Update is what a Store has to write for a change of an account.
type Update struct {
	Account Account
	// Announce makes the store assign a revision to the change and store it for the proxies.
	Announce bool
	// Unchanged reports that nothing changes, so that nothing is written.
	Unchanged bool
}

// Store stores accounts. Each method is one transaction, which also writes the audit entry of a
// change.
type Store interface {
	// Create stores an account with its pools. If the id exists already, it returns the stored account.
	Create(ctx context.Context, a Account) (Account, error)
	Get(ctx context.Context, id ID) (Account, error)
	List(ctx context.Context, q Query) ([]Account, error)
	// Update locks the account and stores the result of decide, which may be called twice. The change is nil if
	// there is nothing to announce.
	Update(ctx context.Context, id ID, decide func(Account) (Update, error)) (Account, *wire.KeyChange, error)
}

// Holdings asks the proxies for the units of a pool that running requests reserve. complete is
// false if a proxy did not answer.
type Holdings interface {
	Running(ctx context.Context, account string, pool wire.PoolID) (amount int64, complete bool)
}

// Config holds the dependencies and settings of a Service.
type Config struct {
	Store     Store
	Announcer propagation.Announcer
	// Holdings may be nil: then Balance.Reserved is the amount that the store reports.
	Holdings Holdings
	Log      *slog.Logger
	// ConfirmTimeout bounds how long a change waits for the proxies; zero does not wait.
	ConfirmTimeout time.Duration
}

// Service manages accounts.
type Service struct{ cfg Config }

// NewService returns a Service.
func NewService(cfg Config) *Service { return &Service{cfg} }

// Create creates an account with a balance of zero. It is idempotent by n.ID.
func (s *Service) Create(ctx context.Context, n New) (Account, error) {
	if err := n.Validate(); err != nil {
		return Account{}, err
	}

	slots := DefaultMaxConcurrentRequests
	if n.MaxConcurrentRequests != nil {
		slots = *n.MaxConcurrentRequests
	}

	return s.cfg.Store.Create(ctx, Account{
		ID:                    ID(n.ID),
		ExternalID:            n.ExternalID,
		Name:                  n.Name,
		Status:                Active,
		MaxConcurrentRequests: slots,
		MaxOpenVideoJobs:      n.MaxOpenVideoJobs,
		IncludeCost:           n.IncludeCost,
		PriceMultiplier:       n.PriceMultiplier.Or(price.One),
		ModelMultipliers:      n.ModelMultipliers,
		Metadata:              n.Metadata,
	})
}

// Get returns an account, or ErrNotFound. It asks the proxies for the reserved amount.
func (s *Service) Get(ctx context.Context, id ID) (Account, error) {
	a, err := s.cfg.Store.Get(ctx, id)
	if err != nil {
		return Account{}, err
	}
	a.Balance = a.Balance.AskProxies(ctx, id, s.cfg.Holdings)
	return a, nil
}

// AskProxies returns the balance with the reserved amount that the proxies report.
func (b Balance) AskProxies(ctx context.Context, id ID, holdings Holdings) Balance {
	b, _ = b.askProxies(ctx, id, holdings)
	return b
}

// askProxies also reports whether the reserved amount is exact.
func (b Balance) askProxies(ctx context.Context, id ID, holdings Holdings) (Balance, bool) {
	if b.Reserved == 0 {
		return b, true
	}
	if holdings == nil {
		return b, false
	}
	running, complete := holdings.Running(ctx, id.String(), b.Pool)
	if complete {
		b.Reserved = min(money.Nano(running), b.Reserved)
		b.Available = b.Balance - b.Reserved
	}
	return b, complete
}

// maxConcurrentQueries bounds the accounts that the proxies are asked about at a time.
const maxConcurrentQueries = 16

// List returns accounts. It asks the proxies for the reserved amounts, as Get does; after the
// first account for which a proxy does not answer, it does not ask for the rest.
func (s *Service) List(ctx context.Context, q Query) ([]Account, error) {
	found, err := s.cfg.Store.List(ctx, q)
	if err != nil {
		return nil, err
	}

	var asking sync.WaitGroup
	var silent atomic.Bool
	next := make(chan *Account)
	for range min(maxConcurrentQueries, len(found)) {
		asking.Go(func() {
			for a := range next {
				if silent.Load() {
					continue
				}
				b, exact := a.Balance.askProxies(ctx, a.ID, s.cfg.Holdings)
				if a.Balance = b; !exact {
					silent.Store(true)
				}
			}
		})
	}

	for i := range found {
		next <- &found[i]
	}

	close(next)
	asking.Wait()
	return found, nil
}

// Updated is the result of Patch.
type Updated struct {
	Account Account
	// Change is the change that proxies have to apply; nil if they need not apply any.
	Change *wire.KeyChange
}

// Patch changes an account. A change that proxies have to apply is announced; proxies that do not
// confirm it in time receive it with their next heartbeat.
func (s *Service) Patch(ctx context.Context, id ID, p Patch) (Updated, error) {
	if err := p.Validate(); err != nil {
		return Updated{}, err
	}

	after, change, err := s.cfg.Store.Update(ctx, id, func(before Account) (Update, error) {
		account, announced := p.apply(before)
		return Update{account, announced, reflect.DeepEqual(account, before)}, p.Match.Check(before.Tag())
	})
	if err != nil || change == nil {
		return Updated{Account: after}, err
	}

	ctx, cancel := context.WithTimeout(ctx, s.cfg.ConfirmTimeout)
	defer cancel()
	if _, err := s.cfg.Announcer.Announce(ctx, *change); err != nil {
		s.cfg.Log.WarnContext(ctx, "announcing an account change failed", "account_id", id, "rev", change.Revision, "error", err)
	}

	return Updated{after, change}, nil
}
