package accountstore

import (
	"context"
	"fmt"
	"slices"

	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
	"modelgateway/shared/wire"
)

func withKeyFigures(ctx context.Context, q *sqlcgen.Queries, row *sqlcgen.ApiKey) (key.Key, error) {
	k, err := toKey(row)
	if err != nil {
		return key.Key{}, err
	}
	one := []key.Key{k}
	err = fillKeyFigures(ctx, q, one)
	return one[0], err
}

// fillKeyFigures reads the spending and the last use of keys, whose number does not change the number of statements.
func fillKeyFigures(ctx context.Context, q *sqlcgen.Queries, keys []key.Key) error {
	if err := fillSpending(ctx, q, keys); err != nil {
		return err
	}
	all := make([]*key.Key, len(keys))
	for i := range keys {
		all[i] = &keys[i]
	}
	return fillLastUse(ctx, q, all)
}

func fillSpending(ctx context.Context, q *sqlcgen.Queries, keys []key.Key) error {
	ids := make([]ident.UUID, len(keys))
	for i := range keys {
		ids[i] = ident.UUID(keys[i].ID)
	}

	rows, err := q.KeySpending(ctx, ids)
	if err != nil {
		return err
	}

	spending := make(map[key.ID]sqlcgen.KeySpendingRow, len(rows))
	for _, row := range rows {
		spending[key.ID(row.KeyID)] = row
	}

	for i := range keys {
		found := spending[keys[i].ID]
		keys[i].Spent, keys[i].Reserved, keys[i].LimitPool = money.Nano(found.Spent), money.Nano(found.Reserved), wire.PoolID(found.PoolID)
	}

	return nil
}

// fillLastUse reads when the last settled requests of keys began. Of a request whose record was dropped only the day is known.
func fillLastUse(ctx context.Context, q *sqlcgen.Queries, keys []*key.Key) error {
	byID, ids := make(map[key.ID]*key.Key, len(keys)), make([]ident.UUID, len(keys))
	for i, k := range keys {
		byID[k.ID], ids[i] = k, ident.UUID(k.ID)
	}

	requests, err := q.LastRequestsOfKeys(ctx, ids)
	if err != nil {
		return fmt.Errorf("last use: %w", err)
	}

	for _, r := range requests {
		byID[key.ID(r.KeyID)].LastUsedAt = new(r.RequestID.Time().UTC())
	}

	var unused sqlcgen.LastDaysOfKeysParams
	for _, k := range keys {
		if k.LastUsedAt == nil {
			unused.KeyIds, unused.AccountIds = append(unused.KeyIds, ident.UUID(k.ID)), append(unused.AccountIds, ident.UUID(k.AccountID))
		}
	}
	if len(unused.KeyIds) == 0 {
		return nil
	}

	unused.AccountIds = slices.Compact(unused.AccountIds)
	days, err := q.LastDaysOfKeys(ctx, unused)
	if err != nil {
		return fmt.Errorf("last day of use: %w", err)
	}

	for _, d := range days {
		byID[key.ID(d.KeyID)].LastUsedAt = new(d.UsedOn.Time)
	}

	return nil
}
