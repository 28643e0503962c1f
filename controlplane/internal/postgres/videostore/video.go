// Package videostore keeps video jobs in Postgres: it implements videojob.Store and
// videojob.Jobs.
package videostore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/videojob"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
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

	if arg.Record, err = json.Marshal(v); err != nil {
		return nil, fmt.Errorf("encode video job: %w", err)
	}

	err = s.db.InTx(ctx, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		if refusal, err = checkUnbilled(ctx, q, &arg); err != nil || refusal != nil {
			return postgres.Translate("check unbilled video jobs", err)
		}
		return postgres.Translate("insert video job", q.InsertVideoJob(ctx, arg))
	})
	return refusal, err
}

// checkUnbilled returns why a further job is refused, or nil. The reasons are in the order of those of a lease batch.
func checkUnbilled(ctx context.Context, q *sqlcgen.Queries, arg *sqlcgen.InsertVideoJobParams) (*event.VideoRefusal, error) {
	most, err := q.LockVideoCreations(ctx, arg.AccountID)
	if err != nil {
		return nil, err
	}

	now, err := q.UnbilledVideoJobs(ctx, sqlcgen.UnbilledVideoJobsParams{
		ID:              arg.ID,
		AccountID:       arg.AccountID,
		KeyID:           arg.KeyID,
		SettlingSeconds: settling.Seconds(),
	})

	switch {
	case err != nil:
		return nil, err
	case most != nil && now.OpenJobs >= int64(*most):
		return &event.VideoRefusal{Reason: event.VideoTooMany, MaxOpen: int64(*most)}, nil
	case !now.KeyUnlimited && now.KeyCost > 0 && now.KeyCost >= now.KeyLeft:
		return &event.VideoRefusal{Reason: event.VideoKeyLimit, Left: money.Nano(now.KeyLeft), Expected: money.Nano(now.KeyCost)}, nil
	case now.AccountCost > 0 && now.AccountCost >= now.BalanceLeft:
		return &event.VideoRefusal{
			Reason:   event.VideoBalance,
			Left:     money.Nano(now.BalanceLeft),
			Expected: money.Nano(now.AccountCost),
		}, nil
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

	row, err := s.db.Queries().VideoJob(ctx, arg)
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
