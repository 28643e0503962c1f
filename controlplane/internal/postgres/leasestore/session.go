package leasestore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

// ShareSessions reads sessions with a shared lock. The lock blocks the closing of a
// session, but neither heartbeats nor settlement. Unknown sessions are omitted.
func ShareSessions(ctx context.Context, q *sqlcgen.Queries, ids []int64) (map[wire.SessionID]*session.Record, error) {
	rows, err := q.ShareSessions(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("lock sessions: %w", err)
	}
	return recordsOf(rows), nil
}

// shareFreeSessions is like ShareSessions, but does not wait: locked has the
// sessions whose rows another transaction holds.
func shareFreeSessions(
	ctx context.Context,
	q *sqlcgen.Queries,
	ids []int64,
) (records map[wire.SessionID]*session.Record, locked map[wire.SessionID]bool, err error) {
	free, err := q.ShareFreeSessions(ctx, ids)
	if err != nil {
		return nil, nil, fmt.Errorf("lock sessions: %w", err)
	}

	rows := make([]sqlcgen.ShareSessionsRow, len(free))
	for i, r := range free {
		rows[i] = sqlcgen.ShareSessionsRow(r)
	}

	records = recordsOf(rows)
	if len(records) == len(ids) {
		return records, nil, nil
	}

	existing, err := q.ExistingSessions(ctx, ids)
	if err != nil {
		return nil, nil, fmt.Errorf("find locked sessions: %w", err)
	}

	locked = map[wire.SessionID]bool{}
	for _, id := range existing {
		if records[wire.SessionID(id)] == nil {
			locked[wire.SessionID(id)] = true
		}
	}

	return records, locked, nil
}

func recordsOf(rows []sqlcgen.ShareSessionsRow) map[wire.SessionID]*session.Record {
	records := make(map[wire.SessionID]*session.Record, len(rows))
	for _, r := range rows {
		id := wire.SessionID(r.ID)
		records[id] = &session.Record{
			ID:              id,
			BootID:          r.BootID,
			State:           session.State(r.State),
			Remaining:       postgres.Seconds(r.LeftSeconds),
			AppliedRevision: r.AppliedRevision,
		}
	}
	return records
}

// lockSession reads a session to end it, with a lock that excludes every other use
// of the session. An unknown session has no state.
func lockSession(ctx context.Context, q *sqlcgen.Queries, id wire.SessionID) (*session.Record, error) {
	r, err := q.LockSession(ctx, int64(id))
	return recordOf(id, sqlcgen.LockSessionForHeartbeatRow(r), err)
}

// lockForHeartbeat reads a session to extend it.
func lockForHeartbeat(ctx context.Context, q *sqlcgen.Queries, id wire.SessionID) (*session.Record, error) {
	r, err := q.LockSessionForHeartbeat(ctx, int64(id))
	return recordOf(id, r, err)
}

func recordOf(id wire.SessionID, r sqlcgen.LockSessionForHeartbeatRow, err error) (*session.Record, error) {
	if errors.Is(err, pgx.ErrNoRows) {
		return &session.Record{ID: id}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("lock session: %w", err)
	}
	return &session.Record{
		ID:              id,
		BootID:          r.BootID,
		State:           session.State(r.State),
		Ending:          r.Ending,
		Remaining:       postgres.Seconds(r.LeftSeconds),
		AppliedRevision: r.AppliedRevision,
	}, nil
}
