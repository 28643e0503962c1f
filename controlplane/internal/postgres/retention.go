package postgres

import (
	"context"
	"time"

	"modelgateway/controlplane/internal/postgres/sqlcgen"
)

// Retention removes rows that can no longer matter. Any number of replicas may
// run it at once.
type Retention struct{ *DB }

const (
	// removeBatch bounds the rows of one statement, removeSessions the sessions of one run.
	removeBatch    = 1000
	removeSessions = 1000
	// sessionsKept is how long a closed session is remembered: longer than the stream keeps events (a week) and than a
	// proxy that was switched off is likely to come back with some in its spool. Later events are settled all the same,
	// as those of an unknown session: late, and once.
	sessionsKept = 60 * 24 * time.Hour
	// changesKept is how long a change that all have applied is kept, for people to look at.
	changesKept = 24 * time.Hour
)

// Remove removes what closed sessions have left behind, those sessions when
// they are old, and changes that every proxy has applied. It returns how many
// rows there were.
func (r Retention) Remove(ctx context.Context) (removed int64, err error) {
	ids, err := r.q.ClosedSessions(ctx, removeSessions)
	if err != nil {
		return 0, Translate("list closed sessions", err)
	}
	for _, id := range ids {
		n, err := r.clear(ctx, id)
		removed += n
		if err != nil {
			return removed, Translate("remove what a session held", err)
		}
	}
	for _, step := range []struct {
		name string
		run  func() (int64, error)
	}{
		{"remove sessions", func() (int64, error) {
			return r.q.RemoveSessions(ctx, sqlcgen.RemoveSessionsParams{AgeSeconds: sessionsKept.Seconds(), MaxRows: removeBatch})
		}},
		{"remove changes", func() (int64, error) {
			return r.q.RemoveKeyChanges(ctx, sqlcgen.RemoveKeyChangesParams{AgeSeconds: changesKept.Seconds(), MaxRows: removeBatch})
		}},
	} {
		n, err := inBatches(step.run)
		removed += n
		if err != nil {
			return removed, Translate(step.name, err)
		}
	}
	return removed, nil
}

// clear removes leases and ops of a closed session.
func (r Retention) clear(ctx context.Context, session int64) (removed int64, err error) {
	leases, err := inBatches(func() (int64, error) {
		return r.q.RemoveLeases(ctx, sqlcgen.RemoveLeasesParams{SessionID: session, MaxRows: removeBatch})
	})
	if err != nil {
		return leases, err
	}
	ops, err := inBatches(func() (int64, error) {
		return r.q.RemoveLeaseOps(ctx, sqlcgen.RemoveLeaseOpsParams{SessionID: session, MaxRows: removeBatch})
	})
	if err != nil {
		return leases + ops, err
	}
	_, err = r.q.NoteCleared(ctx, session) // rows that another holds are left to the next run
	return leases + ops, err
}

// inBatches runs a statement until it removes less than a whole batch.
func inBatches(remove func() (int64, error)) (removed int64, err error) {
	for {
		n, err := remove()
		removed += n
		if err != nil || n < removeBatch {
			return removed, err
		}
	}
}
