// Package windowstore makes the windows of limits, which are pools. A transaction takes shared locks of limits (Share) before it locks
// or makes pools: one that holds pools never waits for a limit.
package windowstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/shared/ident"
	"modelgateway/shared/limit"
	"modelgateway/shared/wire"
)

// Restore makes the windows again that events name and that Postgres has lost with commits; startedMS says when the
// request of an event began. always has those of events that were checked by an operator: theirs are made in any case.
func Restore(ctx context.Context, q *sqlcgen.Queries, startedMS map[int64]int64, always map[int64]bool) error {
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

	made, err := Share(ctx, q, lost)
	if err != nil {
		return err
	}

	for _, id := range lost {
		if err := made.Restore(id, startedMS[id], always[id]); err != nil {
			return err
		}
	}

	return made.Insert(ctx, q)
}

// Window is a window of a limit of a key, its project or its account.
type Window struct {
	Scope limit.Scope
	// LimitID is the limit's id in the API.
	LimitID string
	Pool    int64
}

// Current returns the current windows of the limits for a model, by the clock of Postgres, in the order of the limits. It makes those
// that do not exist.
func Current(ctx context.Context, q *sqlcgen.Queries, of Owner, model string) ([]Window, error) {
	rows, err := q.LimitsOfKey(ctx, sqlcgen.LimitsOfKeyParams{AccountID: of.Account, ProjectID: of.Project, KeyID: of.Key})
	if err != nil {
		return nil, fmt.Errorf("find limits: %w", err)
	}

	var found []Window
	var numbers []int64
	for _, r := range rows {
		var models []string
		if err := json.Unmarshal(r.Models, &models); err != nil {
			return nil, fmt.Errorf("read models of limit %d: %w", r.Number, err)
		}
		if !limit.CoversModel(models, model) {
			continue
		}
		w := Window{Scope: limit.Account, LimitID: ident.Limit.Format(r.ID)}
		switch {
		case r.KeyID != nil:
			w.Scope = limit.Key
		case r.ProjectID != nil:
			w.Scope = limit.Project
		}
		found, numbers = append(found, w), append(numbers, r.Number)
	}

	if len(found) == 0 {
		return nil, nil
	}

	made, err := shareNumbers(ctx, q, numbers)
	if err != nil {
		return nil, err
	}

	for i, number := range numbers {
		if found[i].Pool, err = made.current(number); err != nil {
			return nil, err
		}
	}

	return found, made.Insert(ctx, q)
}

// current makes the current window of a limit.
func (m *Made) current(number int64) (pool int64, err error) {
	row := m.limits[number] // a limit is never deleted
	span, err := seriesOf(row).Current(row.NowMs)
	if err != nil {
		return 0, fmt.Errorf("find window of limit %d: %w", number, err)
	}
	m.add(number, span)
	return limit.Pool(number, span.Number), nil
}

// Made are the windows to be made of locked limits.
type Made struct {
	limits map[int64]*sqlcgen.ShareLimitsRow
	params sqlcgen.InsertWindowsParams
}

// Share takes shared locks of the limits of pools.
func Share(ctx context.Context, q *sqlcgen.Queries, pools []int64) (*Made, error) {
	numbers := map[int64]bool{}
	for _, pool := range pools {
		number, _, _ := limit.OfPool(pool)
		numbers[number] = true
	}

	return shareNumbers(ctx, q, slices.Collect(maps.Keys(numbers)))
}

func shareNumbers(ctx context.Context, q *sqlcgen.Queries, numbers []int64) (*Made, error) {
	rows, err := q.ShareLimits(ctx, numbers)
	if err != nil {
		return nil, fmt.Errorf("lock limits: %w", err)
	}

	made := &Made{limits: make(map[int64]*sqlcgen.ShareLimitsRow, len(rows))}
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

// Check returns the pool of the window in which a request counts that names a pool. If that is the same, it is made.
func (m *Made) Check(pool int64) (right wire.PoolID, err error) {
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

// Restore makes a window that was lost with commits. Without a loss after the request had begun, nobody was granted units of it. A
// report has no such time: it is believed for an hour.
func (m *Made) Restore(pool, startedMS int64, always bool) error {
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

func (m *Made) add(number int64, span limit.Span) {
	p := &m.params
	p.Ids = append(p.Ids, limit.Pool(number, span.Number))
	p.Numbers = append(p.Numbers, number)
	p.StartMs = append(p.StartMs, span.StartMS)
	p.EndMs = append(p.EndMs, span.EndMS)
}

// Insert makes the windows that were checked or restored, unless another transaction has made them.
func (m *Made) Insert(ctx context.Context, q *sqlcgen.Queries) error {
	if len(m.params.Ids) == 0 {
		return nil
	}
	if err := q.InsertWindows(ctx, m.params); err != nil {
		return fmt.Errorf("make windows: %w", err)
	}
	return nil
}
