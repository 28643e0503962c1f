package leasestore

import (
	"context"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/fleet"
	"modelgateway/controlplane/internal/holding"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/shared/ident"
	"modelgateway/shared/wire"
)

// Holdings reads pools.
type Holdings struct{ db *postgres.DB }

// NewHoldings returns a store that uses db.
func NewHoldings(db *postgres.DB) *Holdings { return &Holdings{db} }

func (s *Holdings) Pools(ctx context.Context, id account.ID, after wire.PoolID, limit int, windows ...wire.PoolID) ([]holding.Pool, error) {
	also := make([]int64, len(windows))
	for i, w := range windows {
		also[i] = int64(w)
	}
	q := s.db.Queries()
	rows, err := q.ListAccountPools(
		ctx,
		sqlcgen.ListAccountPoolsParams{
			AccountID: ident.UUID(id),
			After:     int64(after),
			Windows:   also,
			RowLimit:  int32(limit),
		},
	)
	if err != nil {
		return nil, postgres.Translate("list pools", err)
	}

	pools, ids, index := make([]holding.Pool, len(rows)), make([]int64, len(rows)), make(map[int64]int, len(rows))
	for i := range rows {
		r, over := &rows[i].Pool, rows[i].Over
		ids[i], index[r.ID] = r.ID, i
		pools[i] = holding.Pool{
			ID:        wire.PoolID(r.ID),
			Kind:      wire.PoolKind(r.Kind),
			Unlimited: r.Unlimited,
			Total:     r.Total - over,
			Free:      r.Free - over,
			Settled:   r.Settled,
			Overrun:   r.Overrun,
			Late:      r.Late,
			Central:   r.Central,
		}
		if r.KeyID != nil {
			pools[i].KeyID = key.ID(*r.KeyID)
		}
	}

	leases, err := q.ListPoolLeases(ctx, ids)
	for i := range leases {
		l := &leases[i]
		at := index[l.PoolID]

		lease := holding.Lease{
			Session:     l.SessionID,
			Proxy:       l.Name,
			State:       state(l),
			Outstanding: l.Granted - l.Returned - l.Charged,
			Recall:      holding.NoRecall,
		}
		if p := &rows[at].Pool; p.Central {
			lease.Recall = holding.RecallAnswered
			if l.RecalledGeneration < p.Generation {
				lease.Recall = holding.RecallPending
			}
		}

		pools[at].Leases = append(pools[at].Leases, lease)
	}

	return pools, postgres.Translate("list leases", err)
}

// state returns the state of the session of a lease.
func state(l *sqlcgen.ListPoolLeasesRow) string {
	const active, fenced = 1, 2
	switch {
	case l.State == active && l.Expired:
		return fleet.Expired
	case l.State == active:
		return fleet.Active
	case l.State == fenced:
		return fleet.Fenced
	default:
		return fleet.Closed
	}
}
