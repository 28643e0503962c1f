package accountstore

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"reflect"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/etag"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/changestore"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/project"
	"modelgateway/controlplane/internal/spendlimit"
	"modelgateway/shared/ident"
	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/limit"
	"modelgateway/shared/money"
	"modelgateway/shared/wire"
)

// SpendLimits keeps the limits of accounts, projects and keys.
type SpendLimits struct{ db *postgres.DB }

// NewSpendLimits returns a store that uses db.
func NewSpendLimits(db *postgres.DB) *SpendLimits { return &SpendLimits{db} }

var _ spendlimit.Store = (*SpendLimits)(nil)

func (s *SpendLimits) Create(ctx context.Context, l spendlimit.Limit) (made spendlimit.Limit, change *wire.KeyChange, err error) {
	err = s.db.InRevision(ctx, "create limit", func(q *sqlcgen.Queries, rev int64) error {
		change = nil
		if err := checkOwner(ctx, q, &l); err != nil {
			return err
		}
		if err := q.InsertLimit(ctx, insertedLimit(&l, rev)); err != nil {
			return err
		}
		row, err := q.GetLimit(ctx, ident.UUID(l.ID))
		if err != nil {
			return err
		}
		if made, err = toLimit(&row); err != nil || made.Rev != rev {
			return err // it was created before
		}

		if err := checkNumber(ctx, q, row.AccountID); err != nil {
			return err
		}
		if change, err = announceLimit(ctx, q, rev, &row); err != nil {
			return err
		}
		return changestore.InsertAudit(ctx, q, "limit.create", l.ID, nil, made)
	})
	if postgres.Violates(err, "limits_account_id_fkey") {
		err = account.ErrNotFound
	}
	return made, change, err
}

// checkOwner returns the error of a limit whose key or project does not exist, or is that of another account.
func checkOwner(ctx context.Context, q *sqlcgen.Queries, l *spendlimit.Limit) error {
	switch {
	case l.KeyID != nil:
		owner, err := q.GetKey(ctx, ident.UUID(*l.KeyID))
		if err != nil {
			return postgres.NotFoundAs("get key", err, key.ErrNotFound)
		}
		if owner.AccountID != ident.UUID(l.AccountID) {
			return key.ErrNotFound
		}
	case l.ProjectID != nil:
		owner, err := q.GetProject(ctx, ident.UUID(*l.ProjectID))
		if err != nil {
			return postgres.NotFoundAs("get project", err, project.ErrNotFound)
		}
		if owner.AccountID != ident.UUID(l.AccountID) || owner.DeletedAt != nil {
			return project.ErrNotFound
		}
	}
	return nil
}

// checkNumber refuses a change after which more limits apply to a request than it may have needs. Changes are made one after the
// other, so no other one can exceed the bound together with this one.
func checkNumber(ctx context.Context, q *sqlcgen.Queries, account ident.UUID) error {
	most, err := q.CountLimits(ctx, account)
	if err != nil {
		return fmt.Errorf("count limits: %w", err)
	}
	if most > spendlimit.MaxLimits {
		return spendlimit.ErrTooMany
	}
	return nil
}

func insertedLimit(l *spendlimit.Limit, rev int64) sqlcgen.InsertLimitParams {
	return sqlcgen.InsertLimitParams{
		Number:        l.Number,
		ID:            ident.UUID(l.ID),
		AccountID:     ident.UUID(l.AccountID),
		ProjectID:     (*ident.UUID)(l.ProjectID),
		KeyID:         (*ident.UUID)(l.KeyID),
		Name:          l.Name,
		Amount:        int64(l.Amount),
		Period:        string(l.Window.Period),
		TimeZone:      l.Window.TimeZone,
		LengthSeconds: l.Window.LengthSeconds,
		AnchorUnix:    l.Window.AnchorUnix,
		Models:        encodeList(l.Models),
		Revision:      rev,
	}
}

// announceLimit stores the change of a key or an account for the proxies, because they have to read the records of keys again. That of a
// project is one of its account: the keys that are in it when a proxy reads them need not be those that are in it now.
func announceLimit(ctx context.Context, q *sqlcgen.Queries, rev int64, row *sqlcgen.Limit) (*wire.KeyChange, error) {
	kind, owner := wire.AccountUpdated, (*sqlcgen.ApiKey)(nil)
	if row.KeyID != nil {
		k, err := q.GetKey(ctx, *row.KeyID)
		if err != nil {
			return nil, fmt.Errorf("get key: %w", err)
		}
		kind, owner = wire.KeyUpdated, &k
	}
	c, err := changestore.InsertKeyChange(ctx, q, rev, kind, row.AccountID, owner)
	return &c, err
}

func (s *SpendLimits) Get(ctx context.Context, id spendlimit.ID) (spendlimit.Limit, error) {
	row, err := s.db.Queries().GetLimit(ctx, ident.UUID(id))
	if err != nil {
		return spendlimit.Limit{}, postgres.NotFoundAs("get limit", err, spendlimit.ErrNotFound)
	}
	limits, err := toLimits(ctx, s.db.Queries(), []sqlcgen.Limit{row})
	if err != nil {
		return spendlimit.Limit{}, postgres.Translate("get limit", err)
	}
	return limits[0], nil
}

func (s *SpendLimits) List(ctx context.Context, query spendlimit.Query) ([]spendlimit.Limit, error) {
	rows, err := s.db.Queries().ListLimits(ctx, sqlcgen.ListLimitsParams{
		AccountID: ident.UUID(query.AccountID),
		ProjectID: (*ident.UUID)(query.ProjectID),
		KeyID:     (*ident.UUID)(query.KeyID),
		Scope:     string(query.Scope),
		After:     ident.UUID(query.After),
		RowLimit:  int32(query.Limit),
	})
	if err != nil {
		return nil, postgres.Translate("list limits", err)
	}
	limits, err := toLimits(ctx, s.db.Queries(), rows)
	return limits, postgres.Translate("list limits", err)
}

// locked runs a change of a limit that was not removed.
func (s *SpendLimits) locked(
	ctx context.Context,
	operation string,
	id spendlimit.ID,
	change func(q *sqlcgen.Queries, rev int64, row *sqlcgen.Limit, before spendlimit.Limit) error,
) error {
	return s.db.InRevision(ctx, operation, func(q *sqlcgen.Queries, rev int64) error {
		row, err := q.LockLimit(ctx, ident.UUID(id))
		if err != nil {
			return postgres.NotFoundAs("lock limit", err, spendlimit.ErrNotFound)
		}
		before, err := toLimit(&row)
		if err != nil {
			return err
		}
		if before.RemovedAt != nil {
			return spendlimit.ErrNotFound
		}
		return change(q, rev, &row, before)
	})
}

func (s *SpendLimits) Update(
	ctx context.Context, id spendlimit.ID, decide func(spendlimit.Limit) (spendlimit.Limit, error),
) (after spendlimit.Limit, change *wire.KeyChange, err error) {
	err = s.locked(ctx, "update limit", id, func(q *sqlcgen.Queries, rev int64, row *sqlcgen.Limit, before spendlimit.Limit) error {
		change = nil
		after, err := decide(before)
		if err != nil || reflect.DeepEqual(before, after) {
			return err
		}

		updated, err := q.UpdateLimit(ctx, sqlcgen.UpdateLimitParams{
			ID:          row.ID,
			Name:        after.Name,
			Amount:      int64(after.Amount),
			Models:      encodeList(after.Models),
			Revision:    rev,
			RaisedTo:    (*int64)(after.RaisedTo),
			RaisedUntil: after.RaisedUntil,
		})
		if err != nil {
			return err
		}
		if after, err = toLimit(&updated); err != nil {
			return err
		}

		err = changeWindows(ctx, q, row.Number, func(p *allocator.Pool, w *sqlcgen.LockOpenWindowsRow) {
			p.Raise(w.Amount+w.Forgiven, w.RaisedBy, w.RaisedUntilMs)
		})
		if err != nil {
			return err
		}
		if change, err = announceLimit(ctx, q, rev, &updated); err != nil {
			return err
		}
		return changestore.InsertAudit(ctx, q, "limit.update", id, before, after)
	})
	if err != nil {
		return spendlimit.Limit{}, nil, err
	}
	after, err = s.Get(ctx, id)
	return after, change, err
}

// changeWindows changes the windows of a locked limit in which requests may still count, and what is forgiven of them.
func changeWindows(
	ctx context.Context, q *sqlcgen.Queries, number int64, change func(p *allocator.Pool, w *sqlcgen.LockOpenWindowsRow),
) error {
	open, err := q.LockOpenWindows(ctx, sqlcgen.LockOpenWindowsParams{Number: &number, ToleranceSeconds: limit.Tolerance.Seconds()})
	if err != nil {
		return fmt.Errorf("lock windows: %w", err)
	}

	ids := make([]int64, len(open))
	for i := range open {
		ids[i] = open[i].ID
	}

	rows, err := q.LockPools(ctx, ids)
	if err != nil {
		return fmt.Errorf("lock windows: %w", err)
	}

	for i := range rows { // in the order of open
		w := open[i]
		if _, err := leasestore.ResizePool(ctx, q, &rows[i], func(p *allocator.Pool) { change(p, &w) }); err != nil {
			return err
		}
		if w.Forgiven == open[i].Forgiven {
			continue
		}
		if err := q.ForgiveWindow(ctx, sqlcgen.ForgiveWindowParams{ID: w.ID, Forgiven: w.Forgiven}); err != nil {
			return fmt.Errorf("reset window: %w", err)
		}
	}

	return leasestore.RaiseShares(ctx, q, ids...)
}

func (s *SpendLimits) Remove(ctx context.Context, id spendlimit.ID, match etag.Match) (change *wire.KeyChange, err error) {
	err = s.locked(ctx, "remove limit", id, func(q *sqlcgen.Queries, rev int64, row *sqlcgen.Limit, before spendlimit.Limit) error {
		change = nil
		if err := match.Check(before.Tag()); err != nil {
			return fmt.Errorf("remove limit: %w", err)
		}
		removed, err := q.RemoveLimit(ctx, sqlcgen.RemoveLimitParams{ID: row.ID, Revision: rev})
		if err != nil {
			return err
		}
		if change, err = announceLimit(ctx, q, rev, &removed); err != nil {
			return err
		}
		return changestore.InsertAudit(ctx, q, "limit.remove", id, before, nil)
	})
	return change, err
}

func (s *SpendLimits) Reset(
	ctx context.Context, id spendlimit.ID, reset ident.UUID,
) (after spendlimit.Limit, change *wire.KeyChange, err error) {
	err = s.locked(ctx, "reset limit", id, func(q *sqlcgen.Queries, rev int64, row *sqlcgen.Limit, _ spendlimit.Limit) error {
		made := hex.EncodeToString(reset[:])
		repeated, err := q.LimitWasReset(ctx, sqlcgen.LimitWasResetParams{Object: id.String(), ResetID: made})
		if err != nil {
			return err
		}
		if !repeated {
			spent, err := forgive(ctx, q, row.Number)
			if err != nil {
				return err
			}
			before := map[string]any{"reset_id": made, "spent": spent}
			if err := changestore.InsertAudit(ctx, q, "limit.reset", id, before, nil); err != nil {
				return err
			}
		}
		change, err = announceLimit(ctx, q, rev, row) // a repeated reset, too, can wait for the proxies
		return err
	})
	if err != nil {
		return spendlimit.Limit{}, nil, err
	}
	after, err = s.Get(ctx, id)
	return after, change, err
}

// forgive forgives what was spent in the open windows of a locked limit, and returns it.
func forgive(ctx context.Context, q *sqlcgen.Queries, number int64) (spent []money.Nano, err error) {
	err = changeWindows(ctx, q, number, func(p *allocator.Pool, w *sqlcgen.LockOpenWindowsRow) {
		spent = append(spent, money.Nano(p.Settled-w.Forgiven))
		p.Adjust(p.Settled - w.Forgiven)
		w.Forgiven = p.Settled
	})
	if err == nil && len(spent) == 0 {
		err = spendlimit.ErrNoWindow
	}
	return spent, err
}

func (s *SpendLimits) Windows(ctx context.Context, id spendlimit.ID, before wire.PoolID, most int) ([]spendlimit.Window, error) {
	row, err := s.db.Queries().GetLimit(ctx, ident.UUID(id))
	if err != nil {
		return nil, postgres.NotFoundAs("get limit", err, spendlimit.ErrNotFound)
	}
	if before == 0 {
		before = math.MaxInt64
	}
	rows, err := s.db.Queries().ListWindows(ctx, sqlcgen.ListWindowsParams{
		Number:   &row.Number,
		Before:   int64(before),
		RowLimit: int32(most),
	})
	if err != nil {
		return nil, postgres.Translate("list windows", err)
	}
	windows := make([]spendlimit.Window, len(rows))
	for i := range rows {
		windows[i] = toWindow((*sqlcgen.CurrentWindowsRow)(&rows[i]))
	}
	return windows, nil
}

// toLimits returns limits with their current windows.
func toLimits(ctx context.Context, q *sqlcgen.Queries, rows []sqlcgen.Limit) ([]spendlimit.Limit, error) {
	limits, numbers, at := make([]spendlimit.Limit, len(rows)), make([]int64, len(rows)), map[int64]int{}
	for i := range rows {
		var err error
		if limits[i], err = toLimit(&rows[i]); err != nil {
			return nil, err
		}
		numbers[i], at[rows[i].Number] = rows[i].Number, i
	}

	windows, err := q.CurrentWindows(ctx, numbers)
	if err != nil {
		return nil, fmt.Errorf("read windows: %w", err)
	}
	for i := range windows {
		number, _, _ := limit.OfPool(windows[i].ID)
		w := toWindow(&windows[i])
		limits[at[number]].Current = &w
	}

	return limits, nil
}

func toWindow(r *sqlcgen.CurrentWindowsRow) spendlimit.Window {
	return spendlimit.Window{
		Pool:     wire.PoolID(r.ID),
		StartsAt: r.StartsAt,
		EndsAt:   r.EndsAt,
		Amount:   money.Nano(r.Amount),
		Spent:    money.Nano(r.Spent),
		Reserved: money.Nano(r.Held),
		Left:     money.Nano(r.Free),
	}
}

func toLimit(r *sqlcgen.Limit) (spendlimit.Limit, error) {
	l := spendlimit.Limit{
		ID:        spendlimit.ID(r.ID),
		AccountID: account.ID(r.AccountID),
		ProjectID: (*project.ID)(r.ProjectID),
		KeyID:     (*key.ID)(r.KeyID),
		Name:      r.Name,
		Amount:    money.Nano(r.Amount),
		Window: limit.Window{
			Period:        limit.Period(r.Period),
			TimeZone:      r.TimeZone,
			LengthSeconds: r.LengthSeconds,
			AnchorUnix:    r.AnchorUnix,
		},
		RaisedTo:    (*money.Nano)(r.RaisedTo),
		RaisedUntil: r.RaisedUntil,
		RemovedAt:   r.RemovedAt,
		Rev:         r.Revision,
		CreatedAt:   r.CreatedAt,
		UpdatedAt:   r.UpdatedAt,
		Number:      r.Number,
	}
	if err := json.Unmarshal(r.Models, &l.Models); err != nil {
		return l, fmt.Errorf("decode models of limit %s: %w", l.ID, err)
	}
	if len(l.Models) == 0 {
		l.Models = nil
	}
	return l, nil
}
