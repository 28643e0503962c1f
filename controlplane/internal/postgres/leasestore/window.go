package leasestore

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/postgres/windowstore"
	"modelgateway/shared/limit"
	"modelgateway/shared/wire"
)

// windows are the pools of windows that are named by messages.
type windows struct{ needed, reported map[int64]bool }

// windowsOf returns the windows that a batch names.
func windowsOf(requests []*wire.LeaseRequest, returns []*wire.Return) windows {
	w := windows{map[int64]bool{}, map[int64]bool{}}
	add := func(to map[int64]bool, pool wire.PoolID) {
		if _, _, ok := limit.OfPool(int64(pool)); ok {
			to[int64(pool)] = true
		}
	}

	for _, r := range returns {
		for _, v := range r.Reports {
			add(w.reported, v.Pool)
		}
	}

	for _, r := range requests {
		for _, v := range r.Reports {
			add(w.reported, v.Pool)
		}
		for _, needs := range r.Needs {
			for _, n := range needs {
				add(w.needed, n.Pool)
			}
		}
	}

	return w
}

// openWindows makes the windows that requests need and that may be used now, and those of reports that Postgres has lost with
// commits. It returns the pools of the windows in which no request may count, each with the right one; zero if the limit does not
// exist.
//
// It runs before the transaction of the batch, in one of its own: a transaction that holds pools must not wait for another that
// makes the same window. If another transaction holds one of the limits or their accounts for longer than lockWait, all pools that were
// to be made are locked: the messages that name them wait, and no others. Later batches do not wait for them.
func (l *Leases) openWindows(ctx context.Context, w windows) (moved map[wire.PoolID]wire.PoolID, locked map[wire.PoolID]bool, err error) {
	all := maps.Clone(w.needed)
	maps.Copy(all, w.reported)
	if len(all) == 0 {
		return nil, nil, nil
	}

	rows, err := l.db.Queries().UnusableWindows(ctx, sqlcgen.UnusableWindowsParams{
		Ids:              slices.Sorted(maps.Keys(all)),
		ToleranceSeconds: limit.Tolerance.Seconds(),
	})
	if err != nil {
		return nil, nil, fmt.Errorf("find unusable windows: %w", err)
	}

	var needed, lost []int64
	for _, r := range rows {
		switch {
		case w.needed[r.ID]:
			needed = append(needed, r.ID)
		case r.Missing:
			lost = append(lost, r.ID)
		}
	}

	if len(needed)+len(lost) == 0 {
		return nil, nil, nil
	}

	wait := lockWait
	if l.knowsLocked(slices.Concat(needed, lost)) {
		wait = time.Millisecond
	}
	err = l.db.InTxWithLockTimeout(ctx, wait, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		made, err := windowstore.Share(ctx, q, slices.Concat(needed, lost))
		if err != nil {
			return err
		}

		moved = map[wire.PoolID]wire.PoolID{}
		for _, id := range needed {
			if moved[wire.PoolID(id)], err = made.Check(id); err != nil {
				return err
			}
			if moved[wire.PoolID(id)] == wire.PoolID(id) {
				delete(moved, wire.PoolID(id))
			}
		}

		for _, id := range lost {
			if err := made.Restore(id, 0, false); err != nil {
				return err
			}
		}

		return made.Insert(ctx, q)
	})
	if postgres.IsLockTimeout(err) {
		locked = map[wire.PoolID]bool{}
		for _, id := range slices.Concat(needed, lost) {
			locked[wire.PoolID(id)] = true
		}
		return nil, locked, nil
	}

	return moved, nil, err
}

// setLimits sets the limits of a key record.
func setLimits(record *wire.KeyRecord, limits []byte) error {
	if err := json.Unmarshal(limits, &record.Limits); err != nil {
		return fmt.Errorf("postgres: read the limits of %s: %w", record.KeyID, err)
	}
	if len(record.Limits) == 0 {
		record.Limits = nil
	}
	return nil
}
