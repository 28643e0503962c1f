package videostore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/eventstore"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/settle"
	"modelgateway/controlplane/internal/video"
	"modelgateway/controlplane/internal/webhook"
	"modelgateway/shared/ident"
)

// restoring puts kept video jobs back, in the transaction that declares a loss.
// What cannot be put back goes into quarantine: no record keeps the others, and
// the next epoch, from beginning.
type restoring struct {
	ctx    context.Context
	q      *sqlcgen.Queries
	faulty sqlcgen.QuarantineEventsParams
}

// restoreMany bounds the jobs of one statement.
const restoreMany = 500

func Restore(ctx context.Context, tx pgx.Tx, kept []video.Backup) error {
	r := &restoring{ctx: ctx, q: sqlcgen.New(tx)}
	var jobs []video.Backup
	for _, k := range kept {
		if k.Fault != "" {
			r.refuse(k, k.Fault)
			continue
		}
		jobs = append(jobs, k)
	}
	for len(jobs) > 0 {
		n := min(len(jobs), restoreMany)
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
	return eventstore.InsertHourly(ctx, r.q, webhook.Event{Type: webhook.Quarantined, Facts: webhook.Facts{Count: int64(len(r.faulty.Seqs))}}, "")
}

// refuse has a state go into quarantine, as what belongs to no session.
func (r *restoring) refuse(k video.Backup, why string) {
	request := ""
	if k.Video != nil {
		request = k.Video.RequestID
	}
	r.faulty.SessionIds, r.faulty.Seqs = append(r.faulty.SessionIds, 0), append(r.faulty.Seqs, 0)
	r.faulty.RequestIds, r.faulty.Reasons = append(r.faulty.RequestIds, request), append(r.faulty.Reasons, settle.TrimReason(why))
	r.faulty.Payloads = append(r.faulty.Payloads, k.Payload)
}

var errAltered = errors.New("the job is on record as that of another request, key or account")

// restore puts jobs back, or, if that is refused for what is in them, each half
// of them.
func (r *restoring) restore(tx pgx.Tx, jobs []video.Backup) error {
	err := pgx.BeginFunc(r.ctx, tx, func(part pgx.Tx) error { return putBack(r.ctx, sqlcgen.New(part), jobs) })
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, errAltered) && !postgres.IsDataError(err):
		return err //nolint:wrapcheck // putBack's, or the connection's
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

func putBack(ctx context.Context, q *sqlcgen.Queries, jobs []video.Backup) error {
	var arg sqlcgen.RestoreVideoJobsParams
	for _, k := range jobs {
		v := k.Video
		id, _ := ident.Video.Parse(v.ID) // all were parsed when they were read
		account, _ := ident.Account.Parse(v.AccountID)
		key, _ := ident.Key.Parse(v.KeyID)
		request, _ := ident.Request.Parse(v.RequestID)
		arg.Ids, arg.AccountIds, arg.KeyIds = append(arg.Ids, id), append(arg.AccountIds, account), append(arg.KeyIds, key)
		arg.RequestIds, arg.Statuses, arg.Records = append(arg.RequestIds, request), append(arg.Statuses, v.Status), append(arg.Records, string(k.Payload))
		arg.Versions, arg.Created, arg.Ended = append(arg.Versions, v.Rev), append(arg.Created, id.Time()), append(arg.Ended, v.Ended())
	}
	altered, err := q.ConflictingVideoJobs(ctx, sqlcgen.ConflictingVideoJobsParams{
		Ids: arg.Ids, AccountIds: arg.AccountIds, KeyIds: arg.KeyIds, RequestIds: arg.RequestIds,
	})
	if err != nil {
		return err
	}
	if len(altered) > 0 {
		return errAltered
	}
	return q.RestoreVideoJobs(ctx, arg)
}
