package accountstore

import (
	"context"
	"fmt"
	"slices"

	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/shared/ident"
	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/wire"
)

// addSlots makes the pools of those new keys that have slots of their own.
func addSlots(ctx context.Context, q *sqlcgen.Queries, keys []sqlcgen.ApiKey, ids []ident.UUID) error {
	var accounts []ident.UUID
	for i := range keys {
		if k := &keys[i]; k.MaxConcurrentRequests != nil && !slices.Contains(accounts, k.AccountID) {
			accounts = append(accounts, k.AccountID)
		}
	}
	if len(accounts) == 0 {
		return nil
	}

	for _, account := range accounts {
		if err := checkNumber(ctx, q, account); err != nil {
			return err
		}
	}

	if err := q.InsertKeySlots(ctx, ids); err != nil {
		return fmt.Errorf("insert slots: %w", err)
	}
	return nil
}

// setKeySlots gives a locked key its number of slots after a change. Without a bound, requests need none; the pool stays for those that
// run, which give theirs back.
func setKeySlots(ctx context.Context, q *sqlcgen.Queries, row *sqlcgen.ApiKey, before *int) error {
	if row.MaxConcurrentRequests == nil {
		return nil
	}
	if before == nil {
		if err := addSlots(ctx, q, []sqlcgen.ApiKey{*row}, []ident.UUID{row.ID}); err != nil {
			return err
		}
	}
	pool, err := q.LockKeyPool(ctx, sqlcgen.LockKeyPoolParams{KeyID: row.ID, Kind: int16(wire.Slots)})
	if err != nil {
		return fmt.Errorf("lock slots: %w", err)
	}
	slots := int64(*row.MaxConcurrentRequests)
	_, err = leasestore.ResizePool(ctx, q, (*sqlcgen.LockPoolsRow)(&pool), func(p *allocator.Pool) { p.Resize(slots) })
	return err
}

func number(n *int32) *int {
	if n == nil {
		return nil
	}
	return new(int(*n))
}
