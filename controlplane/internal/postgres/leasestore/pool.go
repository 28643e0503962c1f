package leasestore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/webhook"
	"modelgateway/shared/ident"
	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/wire"
)

// StoredPools are locked pools and leases with their stored values.
type StoredPools struct {
	pools map[wire.PoolID]allocator.Pool
	// nowMS is the time of Postgres when the pools were locked.
	nowMS  int64
	leases map[allocator.LeaseKey]allocator.Lease
	// AlarmPools are the pools whose kind has alarms, ordered by id.
	AlarmPools []AlarmPool
	// windowAlarms are the raised alarms of the windows of limits.
	windowAlarms map[wire.PoolID]webhook.AlarmSet
	// DueAccounts are the accounts of balances of which a credit has expired that is not booked yet.
	DueAccounts []ident.UUID
	// Expiring are the rows of the balances that hold expired credits.
	Expiring []sqlcgen.LockPoolsRow
}

// LoadPools locks pools by id, then the leases that the sessions hold on them.
func LoadPools(ctx context.Context, q *sqlcgen.Queries, pools, sessions []int64) (*StoredPools, error) {
	rows, err := q.LockPools(ctx, pools)
	if err != nil {
		return nil, fmt.Errorf("lock pools: %w", err)
	}
	return loadPools(ctx, q, rows, pools, sessions)
}

// lockFreePools is like LockPools, but does not wait: locked has the pools whose rows another transaction holds.
func lockFreePools(
	ctx context.Context,
	q *sqlcgen.Queries,
	pools []int64,
) (rows []sqlcgen.LockPoolsRow, locked map[wire.PoolID]bool, err error) {
	free, err := q.LockFreePools(ctx, pools)
	if err != nil {
		return nil, nil, fmt.Errorf("lock pools: %w", err)
	}

	rows, ids := make([]sqlcgen.LockPoolsRow, len(free)), make([]int64, len(free))
	for i, r := range free {
		rows[i], ids[i] = sqlcgen.LockPoolsRow(r), r.ID
	}

	locked = map[wire.PoolID]bool{}
	if len(ids) == len(pools) {
		return rows, locked, nil
	}

	existing, err := q.ExistingPools(ctx, pools)
	if err != nil {
		return nil, nil, fmt.Errorf("find locked pools: %w", err)
	}
	for _, id := range existing {
		if !slices.Contains(ids, id) {
			locked[wire.PoolID(id)] = true
		}
	}

	return rows, locked, nil
}

// loadOpenPools is like loadPools, but leaves out the balances of DueAccounts, which are due: nothing is granted of them before
// the expiry is booked.
func loadOpenPools(
	ctx context.Context,
	q *sqlcgen.Queries,
	rows []sqlcgen.LockPoolsRow,
	sessions []int64,
) (s *StoredPools, due []wire.PoolID, err error) {
	var accounts []ident.UUID
	var ids []int64
	open := make([]sqlcgen.LockPoolsRow, 0, len(rows))
	for i := range rows {
		r := &rows[i]
		if r.ExpiryDue {
			due, accounts = append(due, wire.PoolID(r.ID)), append(accounts, r.AccountID)
			continue
		}
		open, ids = append(open, *r), append(ids, r.ID)
	}
	if s, err = loadPools(ctx, q, open, ids, sessions); err == nil {
		s.DueAccounts = accounts
	}
	return s, due, err
}

// loadPools reads the leases of locked pools.
func loadPools(ctx context.Context, q *sqlcgen.Queries, rows []sqlcgen.LockPoolsRow, pools, sessions []int64) (*StoredPools, error) {
	s := &StoredPools{pools: map[wire.PoolID]allocator.Pool{}, leases: map[allocator.LeaseKey]allocator.Lease{}}
	s.AlarmPools = make([]AlarmPool, 0, len(rows))
	s.windowAlarms = windowAlarms(rows)
	for i := range rows {
		r := &rows[i]
		if p := alarmPoolOf(r); p != nil {
			s.AlarmPools = append(s.AlarmPools, *p)
		}
		if r.ExpiryDue {
			s.DueAccounts = append(s.DueAccounts, r.AccountID)
		}
		if r.Expiring > 0 {
			s.Expiring = append(s.Expiring, *r)
		}
		s.pools[wire.PoolID(r.ID)] = poolOf(r)
		s.nowMS = max(s.nowMS, r.NowMs)
	}

	leases, err := q.LockLeases(ctx, sqlcgen.LockLeasesParams{PoolIds: pools, SessionIds: sessions})
	if err != nil {
		return nil, fmt.Errorf("lock leases: %w", err)
	}

	for _, r := range leases {
		s.leases[allocator.LeaseKey{Pool: wire.PoolID(r.PoolID), Session: wire.SessionID(r.SessionID)}] = allocator.Lease{
			Granted:            r.Granted,
			Returned:           r.Returned,
			Charged:            r.Charged,
			RecalledGeneration: r.RecalledGeneration,
		}
	}

	return s, nil
}

func poolOf(r *sqlcgen.LockPoolsRow) allocator.Pool {
	return allocator.Pool{
		ID:            wire.PoolID(r.ID),
		Kind:          wire.PoolKind(r.Kind),
		Account:       ident.Account.Format(r.AccountID),
		Unlimited:     r.Unlimited,
		Central:       r.Central,
		Generation:    r.Generation,
		Total:         r.Total,
		Free:          r.Free,
		Settled:       r.Settled,
		EndMS:         r.EndMs,
		Ended:         r.Ended,
		Overrun:       r.Overrun,
		Late:          r.Late,
		RaisedBy:      r.RaisedBy,
		RaisedUntilMS: r.RaisedUntilMs,
	}
}

// raisedUntil returns when a raise of a pool ends; nil if it is not raised.
func raisedUntil(p *allocator.Pool) *time.Time {
	if p.RaisedUntilMS == 0 {
		return nil
	}
	return new(time.UnixMilli(p.RaisedUntilMS))
}

// ResizePool changes the total of a locked pool. It returns the pool with its alarms,
// which are not evaluated yet; nil if its kind has no alarms.
func ResizePool(ctx context.Context, q *sqlcgen.Queries, row *sqlcgen.LockPoolsRow, change func(*allocator.Pool)) (*AlarmPool, error) {
	stored := poolOf(row)
	p := stored
	p.EndRaise(row.NowMs)
	if change(&p); p != stored {
		if err := q.ResizePool(ctx, sqlcgen.ResizePoolParams{
			ID:          row.ID,
			Total:       p.Total,
			Unlimited:   p.Unlimited,
			Free:        p.Free,
			Central:     p.Central,
			Generation:  p.Generation,
			Peak:        max(row.Peak, p.Total-p.Settled),
			RaisedBy:    p.RaisedBy,
			RaisedUntil: raisedUntil(&p),
		}); err != nil {
			return nil, fmt.Errorf("resize pool %d: %w", p.ID, err)
		}
	}

	alarms := alarmPoolOf(row)
	if alarms != nil {
		alarms.Total, alarms.Unlimited = p.Total, p.Unlimited
		alarms.Peak = max(alarms.Peak, alarms.Left())
	}

	return alarms, nil
}

// LoadHolders reads the live leases of pools in escrow mode, and of pools with fewer
// free units than are needed. Leases of other pools need not be recalled.
func LoadHolders(ctx context.Context, q *sqlcgen.Queries, b *allocator.Allocator, wanted map[wire.PoolID]int64) error {
	var pools []int64
	for id, p := range b.Pools {
		if p.Central && p.Free >= wanted[id] {
			b.UnreadHolders[id] = true
			continue
		}
		pools = append(pools, int64(id))
	}

	if len(pools) == 0 {
		return nil
	}

	rows, err := q.LeaseHolders(ctx, pools)
	if err != nil {
		return fmt.Errorf("read holders: %w", err)
	}

	for _, r := range rows {
		id := wire.PoolID(r.PoolID)
		b.Holders[id] = append(
			b.Holders[id],
			allocator.LiveLease{Session: wire.SessionID(r.SessionID), RecalledGeneration: r.RecalledGeneration},
		)
	}

	return nil
}

// Allocator returns an allocator over a copy of the pools and leases.
func (s *StoredPools) Allocator() *allocator.Allocator {
	b := allocator.New()
	for id, p := range s.pools {
		p.EndRaise(s.nowMS)
		b.Pools[id] = &p
	}
	for key, l := range s.leases {
		b.Leases[key] = &l
	}
	return b
}

// Save writes the pools and leases that differ from the stored ones.
func (s *StoredPools) Save(ctx context.Context, q *sqlcgen.Queries, b *allocator.Allocator) error {
	var pools sqlcgen.UpdatePoolsParams
	for id, p := range b.Pools {
		if *p == s.pools[id] {
			continue
		}
		pools.Ids = append(pools.Ids, int64(id))
		pools.Total = append(pools.Total, p.Total)
		pools.Free = append(pools.Free, p.Free)
		pools.Settled = append(pools.Settled, p.Settled)
		pools.Overrun = append(pools.Overrun, p.Overrun)
		pools.Late = append(pools.Late, p.Late)
		pools.Central = append(pools.Central, p.Central)
		pools.Generation = append(pools.Generation, p.Generation)
		pools.RaisedBy = append(pools.RaisedBy, p.RaisedBy)
	}

	if len(pools.Ids) > 0 {
		if err := q.UpdatePools(ctx, pools); err != nil {
			return fmt.Errorf("write pools: %w", err)
		}
	}

	var leases sqlcgen.UpsertLeasesParams
	for key, l := range b.Leases {
		if stored, ok := s.leases[key]; ok && *l == stored {
			continue
		}
		leases.PoolIds = append(leases.PoolIds, int64(key.Pool))
		leases.SessionIds = append(leases.SessionIds, int64(key.Session))
		leases.Granted = append(leases.Granted, l.Granted)
		leases.Returned = append(leases.Returned, l.Returned)
		leases.Charged = append(leases.Charged, l.Charged)
		leases.RecalledGeneration = append(leases.RecalledGeneration, l.RecalledGeneration)
	}

	if len(leases.PoolIds) == 0 {
		return nil
	}
	if err := q.UpsertLeases(ctx, leases); err != nil {
		return fmt.Errorf("write leases: %w", err)
	}

	return nil
}
