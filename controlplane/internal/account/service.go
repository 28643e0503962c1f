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

// Query selects accounts, in the order in which they were made.
type Query struct {
	// ExternalID selects the account with it; empty means all.
	ExternalID string
	// After takes accounts made after this one; the zero ID starts at the first.
	After ID
	// Limit is the greatest number of accounts.
	Limit int
}

// Update is what is to be written for a change of an account.
type Update struct {
	Account Account
	// Announce has the change numbered and kept for proxies.
	Announce bool
	// Same says that nothing changes, so that nothing is written.
	Same bool
}

// Store keeps accounts. Each method is one transaction; those that change
// something write the audit entry in it.
type Store interface {
	// Create makes the account with its pools. If there is one of this id already, that one is returned.
	Create(ctx context.Context, a Account) (Account, error)
	Get(ctx context.Context, id ID) (Account, error)
	List(ctx context.Context, q Query) ([]Account, error)
	// Update locks the account, asks decide what to write and writes it; decide may be asked twice.
	// The change is nil if there is nothing to announce.
	Update(ctx context.Context, id ID, decide func(Account) (Update, error)) (Account, *wire.KeyChange, error)
}

// Holdings asks the proxies what running requests hold of a pool. complete is
// false if one of them has not answered.
type Holdings interface {
	Running(ctx context.Context, account string, pool wire.PoolID) (amount int64, complete bool)
}

// Config is what a Service is made of.
type Config struct {
	Store     Store
	Announcer propagation.Announcer
	// Holdings knows what running requests hold; nil leaves the reserve as the store has it.
	Holdings Holdings
	Log      *slog.Logger
	// ConfirmTimeout is how long a change waits for the proxies; zero does not wait.
	ConfirmTimeout time.Duration
}

// Service is the accounts' rules over a Store.
type Service struct{ cfg Config }

// NewService returns a Service.
func NewService(cfg Config) *Service { return &Service{cfg} }

// Create makes an account with nothing on its balance. It is idempotent by
// n.ID.
func (s *Service) Create(ctx context.Context, n New) (Account, error) {
	if err := n.Validate(); err != nil {
		return Account{}, err
	}
	slots := DefaultMaxConcurrentRequests
	if n.MaxConcurrentRequests != nil {
		slots = *n.MaxConcurrentRequests
	}
	return s.cfg.Store.Create(ctx, Account{
		ID: ID(n.ID), ExternalID: n.ExternalID, Name: n.Name, Status: Active, MaxConcurrentRequests: slots,
		PriceMultiplier: n.PriceMultiplier.Or(price.One), ModelMultipliers: n.ModelMultipliers,
	})
}

// Get returns an account, or ErrNotFound. Its reserve is asked of the proxies.
func (s *Service) Get(ctx context.Context, id ID) (Account, error) {
	a, err := s.cfg.Store.Get(ctx, id)
	if err != nil {
		return Account{}, err
	}
	a.Balance = a.Balance.Ask(ctx, id, s.cfg.Holdings)
	return a, nil
}

// Ask asks the proxies what running requests hold, and returns the balance
// with that for its reserve.
func (b Balance) Ask(ctx context.Context, id ID, holdings Holdings) Balance {
	b, _ = b.ask(ctx, id, holdings)
	return b
}

// ask tells also whether the reserve is exact.
func (b Balance) ask(ctx context.Context, id ID, holdings Holdings) (Balance, bool) {
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

// maxAsked is how many accounts the proxies are asked about at a time.
const maxAsked = 16

// List returns accounts. Their reserves are asked of the proxies, as Get does;
// when one of them does not answer for an account, it is not asked for more.
func (s *Service) List(ctx context.Context, q Query) ([]Account, error) {
	found, err := s.cfg.Store.List(ctx, q)
	if err != nil {
		return nil, err
	}
	var asking sync.WaitGroup
	var silent atomic.Bool
	next := make(chan *Account)
	for range min(maxAsked, len(found)) {
		asking.Go(func() {
			for a := range next {
				if silent.Load() {
					continue
				}
				b, exact := a.Balance.ask(ctx, a.ID, s.cfg.Holdings)
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

// Updated is an account after a change.
type Updated struct {
	Account Account
	// Change is the change that proxies have to apply; nil if they are not concerned.
	Change *wire.KeyChange
}

// Patch changes an account. A change that concerns proxies is announced; if
// they do not confirm it in time, they learn of it with their next heartbeat.
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
