package leasestore

import (
	"context"
	"time"

	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
)

// maxClearedSessions bounds the closed sessions that are cleared in one run.
const maxClearedSessions = 1000

// DeleteOld deletes the leases and lease responses of closed sessions, closed
// sessions after an age, and key changes that every proxy has applied after an
// age. It returns the number of rows. Any number of replicas may run it at once.
func (l *Leases) DeleteOld(ctx context.Context, sessionAge, changeAge time.Duration) (deleted int64, err error) {
	q := l.db.Queries()
	ids, err := q.ClosedSessions(ctx, maxClearedSessions)
	if err != nil {
		return 0, postgres.Translate("list closed sessions", err)
	}

	for _, id := range ids {
		n, err := l.clear(ctx, id)
		deleted += n
		if err != nil {
			return deleted, postgres.Translate("clear closed session", err)
		}
	}

	sessions, err := postgres.DeleteInBatches(func() (int64, error) {
		return q.RemoveSessions(ctx, sqlcgen.RemoveSessionsParams{AgeSeconds: sessionAge.Seconds(), MaxRows: postgres.BatchRows})
	})
	deleted += sessions
	if err != nil {
		return deleted, postgres.Translate("delete sessions", err)
	}

	changes, err := postgres.DeleteInBatches(func() (int64, error) {
		return q.RemoveKeyChanges(ctx, sqlcgen.RemoveKeyChangesParams{AgeSeconds: changeAge.Seconds(), MaxRows: postgres.BatchRows})
	})
	return deleted + changes, postgres.Translate("delete key changes", err)
}

// clear deletes leases and lease responses of a closed session.
func (l *Leases) clear(ctx context.Context, session int64) (deleted int64, err error) {
	leases, err := postgres.DeleteInBatches(func() (int64, error) {
		return l.db.Queries().RemoveLeases(ctx, sqlcgen.RemoveLeasesParams{SessionID: session, MaxRows: postgres.BatchRows})
	})
	if err != nil {
		return leases, err
	}
	responses, err := postgres.DeleteInBatches(func() (int64, error) {
		return l.db.Queries().RemoveLeaseResponses(ctx, sqlcgen.RemoveLeaseResponsesParams{SessionID: session, MaxRows: postgres.BatchRows})
	})
	if err != nil {
		return leases + responses, err
	}
	_, err = l.db.Queries().MarkSessionCleared(ctx, session) // the next run clears rows that another transaction has locked
	return leases + responses, err
}
