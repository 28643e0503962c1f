package videostore

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/videojob"
	"modelgateway/shared/ident"
)

var _ videojob.Jobs = (*Store)(nil)

func (s *Store) Jobs(ctx context.Context, q videojob.JobQuery) ([]videojob.Job, error) {
	arg := sqlcgen.ListVideoJobsParams{
		Floor:    postgres.LowestID(q.From),
		Below:    postgres.HighestID,
		Status:   q.Status,
		State:    string(q.State),
		RowLimit: int32(q.Limit),
	}
	if !q.To.IsZero() {
		arg.Below = postgres.LowestID(q.To)
	}
	if !q.Before.IsZero() && string(q.Before[:]) < string(arg.Below[:]) {
		arg.Below = q.Before
	}

	if q.AccountID != (account.ID{}) {
		id := ident.UUID(q.AccountID)
		arg.AccountID = &id
	}

	return s.jobs(ctx, arg)
}

func (s *Store) Job(ctx context.Context, id ident.UUID) (videojob.Job, error) {
	found, err := s.jobs(ctx, sqlcgen.ListVideoJobsParams{Below: postgres.HighestID, ID: &id, RowLimit: 1})
	if err == nil && len(found) == 0 {
		err = videojob.ErrNotFound
	}
	if err != nil {
		return videojob.Job{}, err
	}
	return found[0], nil
}

func (s *Store) jobs(ctx context.Context, arg sqlcgen.ListVideoJobsParams) ([]videojob.Job, error) {
	arg.UnknownSeconds, arg.StuckSeconds = videojob.UnknownAfter.Seconds(), videojob.StuckAfter.Seconds()
	rows, err := s.db.Queries().ListVideoJobs(ctx, arg)
	if err != nil {
		return nil, postgres.Translate("list video jobs", err)
	}

	found := make([]videojob.Job, len(rows))
	for i, r := range rows {
		found[i] = videojob.Job{
			ID:        r.ID,
			State:     videojob.State(r.State),
			CreatedAt: r.CreatedAt,
			UpdatedAt: r.UpdatedAt,
			EndedAt:   r.EndedAt,
		}
		if err := json.Unmarshal(r.Record, &found[i].Record); err != nil {
			return nil, fmt.Errorf("decode video job %s: %w", ident.Video.Format(r.ID), err)
		}
	}

	return found, nil
}

func (s *Store) Summary(ctx context.Context) (videojob.Summary, error) {
	rows, err := s.db.Queries().SummarizeVideoJobs(ctx, sqlcgen.SummarizeVideoJobsParams{
		UnknownSeconds: videojob.UnknownAfter.Seconds(), StuckSeconds: videojob.StuckAfter.Seconds(),
	})
	sum := videojob.Summary{Jobs: map[videojob.State]int64{}}
	for _, r := range rows {
		sum.Jobs[videojob.State(r.State)] = r.Jobs
		sum.OldestOpen = max(sum.OldestOpen, time.Duration(r.OldestSeconds*float64(time.Second)))
	}
	return sum, postgres.Translate("count video jobs", err)
}
