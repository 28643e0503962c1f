// Package videostore keeps video jobs in Postgres: it implements videojob.Store and
// videojob.Jobs.
package videostore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/postgres/windowstore"
	"modelgateway/controlplane/internal/videojob"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/limit"
	"modelgateway/shared/money"
	"modelgateway/shared/wire"
)

// Store keeps video jobs.
type Store struct{ db *postgres.DB }

// New returns a store that uses db.
func New(db *postgres.DB) *Store { return &Store{db} }

var _ videojob.Store = (*Store)(nil)

// settling is how long a completed job counts as unbilled at most, if it has no usage record.
const settling = 10 * time.Minute

func (s *Store) Insert(ctx context.Context, v *event.Video) (refusal *event.VideoRefusal, err error) {
	arg := sqlcgen.InsertVideoJobParams{Status: v.Status, ExpectedCost: int64(v.ExpectedCost)}
	for _, id := range []struct {
		kind ident.Kind
		text string
		into *ident.UUID
	}{
		{ident.Video, v.ID, &arg.ID},
		{ident.Account, v.AccountID, &arg.AccountID},
		{ident.Key, v.KeyID, &arg.KeyID},
		{ident.Request, v.RequestID, &arg.RequestID},
	} {
		if *id.into, err = id.kind.Parse(id.text); err != nil {
			return nil, err
		}
	}

	err = s.db.InTx(ctx, func(tx pgx.Tx) error {
		refusal, err = create(ctx, sqlcgen.New(tx), &arg, v)
		return postgres.Translate("record video job", err)
	})
	return refusal, err
}

// errUndone ends a transaction that only asks.
var errUndone = errors.New("videostore: undone")

// WouldRefuse returns why the creation of a job would be refused now, nil if it would not. It decides as a creation does, and undoes
// that. The job may be without a key, for one of the account that has no limit of its own; its ids are not read otherwise.
func (s *Store) WouldRefuse(ctx context.Context, v *event.Video) (refusal *event.VideoRefusal, err error) {
	var arg sqlcgen.InsertVideoJobParams
	if arg.AccountID, err = ident.Account.Parse(v.AccountID); err != nil {
		return nil, err
	}
	if v.KeyID != "" {
		if arg.KeyID, err = ident.Key.Parse(v.KeyID); err != nil {
			return nil, err
		}
	}

	err = s.db.InTx(ctx, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		most, err := q.LockVideoCreations(ctx, arg.AccountID)
		if err == nil {
			refusal, err = decide(ctx, q, &arg, most, v)
		}
		if err != nil {
			return postgres.Translate("ask about video job", err)
		}
		return errUndone
	})
	if errors.Is(err, errUndone) {
		err = nil
	}
	return refusal, err
}

// create records a job in the current windows of the limits that apply to it, unless it is refused.
func create(ctx context.Context, q *sqlcgen.Queries, arg *sqlcgen.InsertVideoJobParams, v *event.Video) (*event.VideoRefusal, error) {
	most, err := q.LockVideoCreations(ctx, arg.AccountID)
	if err != nil {
		return nil, err
	}

	switch recorded, err := get(ctx, q, sqlcgen.VideoJobParams{ID: arg.ID, AccountID: &arg.AccountID}); {
	case err == nil: // it stays in its windows, which may have ended since
		v.ProjectID, v.Limits = recorded.ProjectID, recorded.Limits
		return nil, nil //nolint:nilnil // the job is not refused
	case !errors.Is(err, videojob.ErrNotFound):
		return nil, err
	}

	refusal, err := decide(ctx, q, arg, most, v)
	if err != nil || refusal != nil {
		return refusal, err
	}
	if arg.Record, err = json.Marshal(v); err != nil {
		return nil, fmt.Errorf("encode video job: %w", err)
	}

	return nil, q.InsertVideoJob(ctx, *arg)
}

// decide finds the current windows of the limits that apply to a job, and returns why it is refused, or nil.
func decide(
	ctx context.Context, q *sqlcgen.Queries, arg *sqlcgen.InsertVideoJobParams, most *int32, v *event.Video,
) (*event.VideoRefusal, error) {
	of, err := ownerOf(ctx, q, arg, v)
	if err != nil {
		return nil, err
	}
	windows, err := windowstore.Current(ctx, q, of, v.Model)
	if err != nil {
		return nil, err
	}
	v.Limits = nil // whatever the proxy says
	for i := range windows {
		v.Limits = append(v.Limits, windows[i].Pool)
	}

	return checkUnbilled(ctx, q, arg, most, v, windows)
}

// ownerOf sets the project of a job to that of its key, whatever the proxy says: the key may have moved while the proxy prepared the job.
func ownerOf(ctx context.Context, q *sqlcgen.Queries, arg *sqlcgen.InsertVideoJobParams, v *event.Video) (windowstore.Owner, error) {
	of := windowstore.Owner{Account: arg.AccountID, Key: arg.KeyID}
	project, err := q.ProjectOfKey(ctx, sqlcgen.ProjectOfKeyParams{ID: arg.KeyID, AccountID: arg.AccountID})
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return of, fmt.Errorf("find project: %w", err)
	}
	v.ProjectID = ""
	if project != nil {
		of.Project, v.ProjectID = *project, ident.Project.Format(*project)
	}
	return of, nil
}

// checkUnbilled returns why a further job is refused, or nil. The reasons are in the order of those of a lease batch.
func checkUnbilled(
	ctx context.Context, q *sqlcgen.Queries, arg *sqlcgen.InsertVideoJobParams, most *int32, v *event.Video, windows []windowstore.Window,
) (*event.VideoRefusal, error) {
	rows, err := q.UnbilledVideoJobs(ctx, sqlcgen.UnbilledVideoJobsParams{
		ID:              arg.ID,
		AccountID:       arg.AccountID,
		KeyID:           &arg.KeyID,
		Windows:         v.Limits,
		SettlingSeconds: settling.Seconds(),
	})
	if err != nil {
		return nil, err
	}

	for i := range rows {
		if r := &rows[i]; r.Kind == int16(wire.Balance) && most != nil && r.OpenJobs >= int64(*most) {
			return &event.VideoRefusal{Reason: event.VideoTooMany, MaxOpen: int64(*most)}, nil
		}
	}

	for i := range rows {
		r := &rows[i]
		// What is spent may not show at the proxy yet, which may still hold idle units of it.
		if free := r.ExpectedCost == 0 && v.ExpectedCost == 0; r.Unlimited || free || r.ExpectedCost < r.Remaining {
			continue
		}
		refusal := &event.VideoRefusal{Left: money.Nano(r.Remaining), Expected: money.Nano(r.ExpectedCost), ResetsMS: r.EndMs}
		switch {
		case r.Kind == int16(wire.Balance):
			refusal.Reason = event.VideoBalance
		case r.LimitNumber == nil:
			refusal.Reason, refusal.Scope, refusal.LimitID = event.VideoKeyLimit, limit.Key, v.KeyID
		default:
			w := windows[slices.Index(v.Limits, r.ID)]
			refusal.Reason, refusal.Scope, refusal.LimitID = event.VideoLimit, w.Scope, w.LimitID
		}
		return refusal, nil
	}

	return nil, nil //nolint:nilnil // the job is not refused
}

func (s *Store) Get(ctx context.Context, id, account string) (*event.Video, error) {
	job, err := ident.Video.Parse(id)
	if err != nil {
		return nil, videojob.ErrNotFound
	}

	arg := sqlcgen.VideoJobParams{ID: job}
	if account != "" {
		owner, err := ident.Account.Parse(account)
		if err != nil {
			return nil, videojob.ErrNotFound
		}
		arg.AccountID = &owner
	}

	return get(ctx, s.db.Queries(), arg)
}

func get(ctx context.Context, q *sqlcgen.Queries, arg sqlcgen.VideoJobParams) (*event.Video, error) {
	row, err := q.VideoJob(ctx, arg)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, videojob.ErrNotFound
	}
	if err != nil {
		return nil, postgres.Translate("read video job", err)
	}

	v := new(event.Video)
	if err := json.Unmarshal(row.Record, v); err != nil {
		return nil, fmt.Errorf("decode video job: %w", err)
	}

	v.Rev = row.Version
	return v, nil
}

func (s *Store) Update(ctx context.Context, v *event.Video) (*event.Video, error) {
	id, err := ident.Video.Parse(v.ID)
	if err != nil {
		return nil, videojob.ErrNotFound
	}

	record, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode video job: %w", err)
	}

	updated := *v
	err = s.db.InTx(ctx, func(tx pgx.Tx) error {
		updated.Rev, err = sqlcgen.New(tx).UpdateVideoJob(ctx, sqlcgen.UpdateVideoJobParams{
			ID:      id,
			Version: v.Rev,
			Status:  v.Status,
			Record:  record,
			Ended:   v.Ended(),
		})
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, videojob.ErrConflict
	}
	if err != nil {
		return nil, postgres.Translate("update video job", err)
	}

	return &updated, nil
}

func (s *Store) Open(ctx context.Context, idle time.Duration, after videojob.Place, limit int) ([]videojob.Idle, error) {
	rows, err := s.db.Queries().OpenVideoJobs(ctx, sqlcgen.OpenVideoJobsParams{
		IdleSeconds:  idle.Seconds(),
		AfterUpdated: after.UpdatedAt,
		AfterID:      after.ID,
		MaxRows:      int32(limit),
	})
	if err != nil {
		return nil, postgres.Translate("list open video jobs", err)
	}

	jobs := make([]videojob.Idle, len(rows))
	for i, r := range rows {
		jobs[i] = videojob.Idle{
			Place: videojob.Place{UpdatedAt: r.UpdatedAt, ID: r.ID},
			Poll:  event.VideoPoll{V: event.Version, ID: ident.Video.Format(r.ID), AccountID: ident.Account.Format(r.AccountID)},
		}
	}

	return jobs, nil
}
