package videostore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/changestore"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/postgres/windowstore"
	"modelgateway/controlplane/internal/settle"
	"modelgateway/controlplane/internal/videojob"
	"modelgateway/controlplane/internal/webhook"
	"modelgateway/shared/ident"
)

// restoring writes backed-up video jobs again, in the transaction that declares a
// loss. A job that cannot be written goes into quarantine, so that it does not
// prevent the declaration.
type restoring struct {
	ctx    context.Context
	q      *sqlcgen.Queries
	faulty sqlcgen.QuarantineEventsParams
}

// restoreBatch bounds the jobs of one statement.
const restoreBatch = 500

// Restore writes backed-up video jobs in the transaction that declares a loss.
func Restore(ctx context.Context, tx pgx.Tx, kept []videojob.Backup) error {
	r := &restoring{ctx: ctx, q: sqlcgen.New(tx)}
	var jobs []videojob.Backup
	for _, k := range kept {
		if k.Fault != "" {
			r.refuse(k, k.Fault)
			continue
		}
		jobs = append(jobs, k)
	}

	if err := restoreWindows(ctx, r.q, jobs); err != nil {
		return fmt.Errorf("restore windows of video jobs: %w", err)
	}

	for len(jobs) > 0 {
		n := min(len(jobs), restoreBatch)
		if err := r.restore(tx, jobs[:n]); err != nil {
			return fmt.Errorf("restore video jobs: %w", err)
		}
		jobs = jobs[n:]
	}

	if len(r.faulty.Seqs) == 0 {
		return nil
	}
	if err := r.q.QuarantineEvents(ctx, r.faulty); err != nil {
		return fmt.Errorf("quarantine: %w", err)
	}

	return changestore.InsertEvents(ctx, r.q, webhook.QuarantineEvent(len(r.faulty.Seqs), time.Now()))
}

// restoreWindows makes the windows again in which jobs count. Settlement would make them when the jobs end, and until then further
// requests would not count in the same ones.
func restoreWindows(ctx context.Context, q *sqlcgen.Queries, jobs []videojob.Backup) error {
	first := map[int64]int64{} // when the first of the jobs in a window was created
	for _, k := range jobs {
		id, _ := ident.Video.Parse(k.Video.ID) // all were parsed when they were read
		created := id.Time().UnixMilli()
		for _, pool := range k.Video.Limits {
			if known, ok := first[pool]; !ok || created < known {
				first[pool] = created
			}
		}
	}
	return windowstore.Restore(ctx, q, first, nil)
}

// refuse puts a job into quarantine, without a session.
func (r *restoring) refuse(k videojob.Backup, why string) {
	request := ""
	if k.Video != nil {
		request = k.Video.RequestID
	}
	r.faulty.SessionIds, r.faulty.Seqs = append(r.faulty.SessionIds, 0), append(r.faulty.Seqs, 0)
	r.faulty.RequestIds, r.faulty.Reasons = append(r.faulty.RequestIds, request), append(r.faulty.Reasons, settle.TrimReason(why))
	r.faulty.Payloads = append(r.faulty.Payloads, k.Payload)
}

var errConflict = errors.New("the job is recorded with another request, key or account")

// restore writes jobs. If Postgres refuses their content, it writes each half of
// them separately, until it finds the invalid jobs.
func (r *restoring) restore(tx pgx.Tx, jobs []videojob.Backup) error {
	err := pgx.BeginFunc(r.ctx, tx, func(part pgx.Tx) error { return writeJobs(r.ctx, sqlcgen.New(part), jobs) })
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, errConflict) && !postgres.IsDataError(err):
		return err //nolint:wrapcheck // wrapped by the caller
	case len(jobs) == 1:
		r.refuse(jobs[0], "video job: "+err.Error())
		return nil
	}
	half := len(jobs) / 2
	if err := r.restore(tx, jobs[:half]); err != nil {
		return err
	}
	return r.restore(tx, jobs[half:])
}

func writeJobs(ctx context.Context, q *sqlcgen.Queries, jobs []videojob.Backup) error {
	var arg sqlcgen.RestoreVideoJobsParams
	for _, k := range jobs {
		v := k.Video
		id, _ := ident.Video.Parse(v.ID) // all were parsed when they were read
		account, _ := ident.Account.Parse(v.AccountID)
		key, _ := ident.Key.Parse(v.KeyID)
		request, _ := ident.Request.Parse(v.RequestID)
		arg.Ids, arg.AccountIds, arg.KeyIds = append(arg.Ids, id), append(arg.AccountIds, account), append(arg.KeyIds, key)
		arg.RequestIds, arg.Statuses, arg.Records = append(
			arg.RequestIds,
			request,
		), append(
			arg.Statuses,
			v.Status,
		), append(
			arg.Records,
			string(k.Payload),
		)
		arg.ExpectedCosts = append(arg.ExpectedCosts, int64(v.ExpectedCost))
		arg.Versions, arg.Created, arg.Ended = append(arg.Versions, v.Rev), append(arg.Created, id.Time()), append(arg.Ended, v.Ended())
	}

	altered, err := q.ConflictingVideoJobs(ctx, sqlcgen.ConflictingVideoJobsParams{
		Ids:        arg.Ids,
		AccountIds: arg.AccountIds,
		KeyIds:     arg.KeyIds,
		RequestIds: arg.RequestIds,
	})
	if err != nil {
		return err
	}
	if len(altered) > 0 {
		return errConflict
	}

	return q.RestoreVideoJobs(ctx, arg)
}
