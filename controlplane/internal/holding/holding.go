// Package holding shows who holds the units of an account: its balance, its request slots and the spend limits of its
// keys, each with the leases of proxies, and what running requests reserve of them.
package holding

import (
	"context"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/key"
	"modelgateway/shared/wire"
)

// Pool is one pool of an account. Amounts are in nano-units, or counts for slots.
type Pool struct {
	ID   wire.PoolID
	Kind wire.PoolKind
	// KeyID is the key of a spend limit.
	KeyID key.ID
	// Unlimited pools have no total and refuse nothing.
	Unlimited                           bool
	Total, Free, Settled, Overrun, Late int64
	// Central: proxies hold no idle units, since few are left.
	Central bool
	Leases  []Lease
}

// Outstanding returns the units that all leases of the pool hold together.
func (p *Pool) Outstanding() (sum int64) {
	for i := range p.Leases {
		sum += p.Leases[i].Outstanding
	}
	return sum
}

// Lease is what one session of a proxy holds of a pool.
type Lease struct {
	Session int64
	Proxy   string
	// State is one of those of package fleet.
	State       string
	Outstanding int64
	// Running is the part that running requests reserve; nil if the proxy did not answer.
	Running *int64
	Recall  Recall
}

// Recall is the state of the recall of idle units.
type Recall string

// The states. A central pool recalls its idle units.
const (
	NoRecall       Recall = "none"
	RecallPending  Recall = "pending"
	RecallAnswered Recall = "answered"
)

// Store reads pools.
type Store interface {
	// Pools returns pools with ids above after, in their order, with the leases that hold something.
	Pools(ctx context.Context, id account.ID, after wire.PoolID, limit int) ([]Pool, error)
}

// Proxies are asked what running requests reserve.
type Proxies interface {
	// RunningBySession returns the reserved units by session and pool, and the names of the proxies that did not answer.
	RunningBySession(ctx context.Context, account string) (reserved map[wire.SessionID]map[wire.PoolID]int64, silent []string, err error)
}

// Service reads who holds what.
type Service struct {
	store   Store
	proxies Proxies
}

// NewService returns a Service. proxies may be nil: then nothing is known about running requests.
func NewService(store Store, proxies Proxies) *Service { return &Service{store, proxies} }

// Page is a part of an account's pools.
type Page struct {
	Pools []Pool
	// Silent are the proxies that did not answer.
	Silent []string
}

// Pools returns pools of an account.
func (s *Service) Pools(ctx context.Context, id account.ID, after wire.PoolID, limit int) (Page, error) {
	pools, err := s.store.Pools(ctx, id, after, limit)
	if err != nil || s.proxies == nil {
		return Page{Pools: pools}, err
	}
	reserved, silent, err := s.proxies.RunningBySession(ctx, id.String())
	if err != nil {
		return Page{}, err
	}
	for i := range pools {
		p := &pools[i]
		for j := range p.Leases {
			l := &p.Leases[j]
			if of, answered := reserved[wire.SessionID(l.Session)]; answered {
				running := min(of[p.ID], l.Outstanding)
				l.Running = &running
			}
		}
	}
	return Page{pools, silent}, nil
}
