package leasestore

import (
	"context"
	"time"

	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
)

// Retention removes rows that can no longer matter. Any number of replicas may
// run it at once.
type Retention struct{ db *postgres.DB }

// NewRetention returns a store in this database.
func NewRetention(db *postgres.DB) *Retention { return &Retention{db} }

const (
	// removeSessions bounds the sessions of one run.
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
func (r *Retention) Remove(ctx context.Context) (removed int64, err error) {
	ids, err := r.db.Queries().ClosedSessions(ctx, removeSessions)
	if err != nil {
		return 0, postgres.Translate("list closed sessions", err)
	}
	for _, id := range ids {
		n, err := r.clear(ctx, id)
		removed += n
		if err != nil {
			return removed, postgres.Translate("remove what a session held", err)
		}
	}
	for _, step := range []struct {
		name string
		run  func() (int64, error)
	}{
		{"remove sessions", func() (int64, error) {
			return r.db.Queries().RemoveSessions(ctx, sqlcgen.RemoveSessionsParams{AgeSeconds: sessionsKept.Seconds(), MaxRows: postgres.BatchRows})
		}},
		{"remove changes", func() (int64, error) {
			return r.db.Queries().RemoveKeyChanges(ctx, sqlcgen.RemoveKeyChangesParams{AgeSeconds: changesKept.Seconds(), MaxRows: postgres.BatchRows})
		}},
	} {
		n, err := postgres.DeleteInBatches(step.run)
		removed += n
		if err != nil {
			return removed, postgres.Translate(step.name, err)
		}
	}
	return removed, nil
}

// clear removes leases and ops of a closed session.
func (r *Retention) clear(ctx context.Context, session int64) (removed int64, err error) {
	leases, err := postgres.DeleteInBatches(func() (int64, error) {
		return r.db.Queries().RemoveLeases(ctx, sqlcgen.RemoveLeasesParams{SessionID: session, MaxRows: postgres.BatchRows})
	})
	if err != nil {
		return leases, err
	}
	ops, err := postgres.DeleteInBatches(func() (int64, error) {
		return r.db.Queries().RemoveLeaseResponses(ctx, sqlcgen.RemoveLeaseResponsesParams{SessionID: session, MaxRows: postgres.BatchRows})
	})
	if err != nil {
		return leases + ops, err
	}
	_, err = r.db.Queries().MarkSessionCleared(ctx, session) // rows that another holds are left to the next run
	return leases + ops, err
}
