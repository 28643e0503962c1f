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
	// KeyID is the key of a spend limit, or of slots of a key; zero for a pool of the account.
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

// Idle returns the units that proxies hold and no running request reserves. Those of a proxy that did not answer are not
// among them.
func (p *Pool) Idle() (sum int64) {
	for i := range p.Leases {
		if l := &p.Leases[i]; l.Running != nil {
			sum += l.Outstanding - *l.Running
		}
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
	// Pools returns pools with ids above after, in their order, with the leases that hold something. Windows of limits are left out, except
	// those that are named.
	Pools(ctx context.Context, id account.ID, after wire.PoolID, limit int, windows ...wire.PoolID) ([]Pool, error)
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
	if err != nil {
		return Page{}, err
	}
	silent, err := s.setRunning(ctx, id, pools)
	return Page{pools, silent}, err
}

// Of returns some pools of an account; those that it does not have are left out.
func (s *Service) Of(ctx context.Context, id account.ID, ids []wire.PoolID) ([]Pool, error) {
	var pools []Pool
	for _, wanted := range ids {
		found, err := s.store.Pools(ctx, id, wanted-1, 1, wanted)
		if err != nil {
			return nil, err
		}
		if len(found) == 1 && found[0].ID == wanted {
			pools = append(pools, found[0])
		}
	}
	_, err := s.setRunning(ctx, id, pools)
	return pools, err
}

// setRunning asks the proxies what running requests reserve. It returns the names of those that did not answer.
func (s *Service) setRunning(ctx context.Context, id account.ID, pools []Pool) (silent []string, err error) {
	if s.proxies == nil {
		return nil, nil
	}

	reserved, silent, err := s.proxies.RunningBySession(ctx, id.String())
	if err != nil {
		return nil, err
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

	return silent, nil
}
