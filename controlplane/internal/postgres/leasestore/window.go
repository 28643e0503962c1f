package leasestore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
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
// makes the same window. If another transaction holds the limits or their accounts for longer than lockWait, the pools are locked: the
// messages that name them wait, and no others. Later batches do not wait for them.
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
		made, err := shareLimits(ctx, q, slices.Concat(needed, lost))
		if err != nil {
			return err
		}

		moved = map[wire.PoolID]wire.PoolID{}
		for _, id := range needed {
			if moved[wire.PoolID(id)], err = made.check(id); err != nil {
				return err
			}
			if moved[wire.PoolID(id)] == wire.PoolID(id) {
				delete(moved, wire.PoolID(id))
			}
		}

		for _, id := range lost {
			if err := made.restore(id, 0, false); err != nil {
				return err
			}
		}

		return made.insert(ctx, q)
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

// RestoreWindows makes the windows again that events name and that Postgres has lost with commits; startedMS says when the
// request of an event began. always has those of events that were checked by an operator: theirs are made in any case.
func RestoreWindows(ctx context.Context, q *sqlcgen.Queries, startedMS map[int64]int64, always map[int64]bool) error {
	if len(startedMS) == 0 {
		return nil
	}

	existing, err := q.ExistingPools(ctx, slices.Collect(maps.Keys(startedMS)))
	if err != nil {
		return fmt.Errorf("find windows: %w", err)
	}

	var lost []int64
	for _, id := range slices.Sorted(maps.Keys(startedMS)) {
		if !slices.Contains(existing, id) {
			lost = append(lost, id)
		}
	}

	if len(lost) == 0 {
		return nil
	}

	made, err := shareLimits(ctx, q, lost)
	if err != nil {
		return err
	}

	for _, id := range lost {
		if err := made.restore(id, startedMS[id], always[id]); err != nil {
			return err
		}
	}

	return made.insert(ctx, q)
}

// madeWindows are the windows to be made of locked limits.
type madeWindows struct {
	limits map[int64]*sqlcgen.ShareLimitsRow
	sqlcgen.InsertWindowsParams
}

// shareLimits takes shared locks of the limits of pools.
func shareLimits(ctx context.Context, q *sqlcgen.Queries, pools []int64) (*madeWindows, error) {
	numbers := map[int64]bool{}
	for _, pool := range pools {
		number, _, _ := limit.OfPool(pool)
		numbers[number] = true
	}

	rows, err := q.ShareLimits(ctx, slices.Collect(maps.Keys(numbers)))
	if err != nil {
		return nil, fmt.Errorf("lock limits: %w", err)
	}

	made := &madeWindows{limits: make(map[int64]*sqlcgen.ShareLimitsRow, len(rows))}
	for i := range rows {
		made.limits[rows[i].Number] = &rows[i]
	}

	return made, nil
}

func seriesOf(r *sqlcgen.ShareLimitsRow) *limit.Series {
	_, number, _ := limit.OfPool(r.Newest)
	return &limit.Series{
		Window: limit.Window{
			Period:        limit.Period(r.Period),
			TimeZone:      r.TimeZone,
			LengthSeconds: r.LengthSeconds,
			AnchorUnix:    r.AnchorUnix,
		},
		Newest:    limit.Span{Number: number, StartMS: r.NewestStartMs, EndMS: r.NewestEndMs},
		Tolerance: limit.Tolerance,
	}
}

// check returns the pool of the window in which a request counts that names a pool. If that is the same, it is made.
func (m *madeWindows) check(pool int64) (right wire.PoolID, err error) {
	number, window, _ := limit.OfPool(pool)
	row := m.limits[number]
	if row == nil {
		return 0, nil
	}
	span, accepted, err := seriesOf(row).Check(window, row.NowMs)
	if err != nil {
		return 0, fmt.Errorf("find window of limit %d: %w", number, err)
	}
	if accepted {
		m.add(number, span)
	}
	return wire.PoolID(limit.Pool(number, span.Number)), nil
}

// restore makes a window that was lost with commits. Without a loss after the request had begun, nobody was granted units of it. A
// report has no such time: it is believed for an hour.
func (m *madeWindows) restore(pool, startedMS int64, always bool) error {
	number, window, _ := limit.OfPool(pool)
	row := m.limits[number]
	if row == nil {
		return nil
	}
	if lost := startedMS != 0 && startedMS < row.LostMs; !row.AfterLoss && !always && !lost {
		return nil
	}
	span, err := seriesOf(row).Restore(window, cmp.Or(startedMS, row.NowMs))
	if errors.Is(err, limit.ErrNeverMade) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("restore window of limit %d: %w", number, err)
	}
	m.add(number, span)
	if id := limit.Pool(number, span.Number); id > row.Newest { // the next one that was lost begins after it
		row.Newest, row.NewestStartMs, row.NewestEndMs = id, span.StartMS, span.EndMS
	}
	return nil
}

func (m *madeWindows) add(number int64, span limit.Span) {
	m.Ids = append(m.Ids, limit.Pool(number, span.Number))
	m.Numbers = append(m.Numbers, number)
	m.StartMs = append(m.StartMs, span.StartMS)
	m.EndMs = append(m.EndMs, span.EndMS)
}

func (m *madeWindows) insert(ctx context.Context, q *sqlcgen.Queries) error {
	if len(m.Ids) == 0 {
		return nil
	}
	if err := q.InsertWindows(ctx, m.InsertWindowsParams); err != nil {
		return fmt.Errorf("make windows: %w", err)
	}
	return nil
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
