package leasestore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/postgres/pgconv"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

// shareTenures reads sessions and holds off their closing; renewals and
// settlement pass. One that does not exist is missing.
func ShareSessions(ctx context.Context, q *sqlcgen.Queries, ids []int64) (map[wire.SessionID]*session.Record, error) {
	rows, err := q.ShareSessions(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("lock sessions: %w", err)
	}
	tenures := make(map[wire.SessionID]*session.Record, len(rows))
	for _, r := range rows {
		id := wire.SessionID(r.ID)
		tenures[id] = &session.Record{ID: id, BootID: r.BootID, State: session.State(r.State), Remaining: pgconv.Seconds(r.LeftSeconds), AppliedRevision: r.AppliedRevision}
	}
	return tenures, nil
}

// lockTenure reads a session to end it: nothing of it is under way meanwhile.
// One that does not exist has no state.
func lockTenure(ctx context.Context, q *sqlcgen.Queries, id wire.SessionID) (*session.Record, error) {
	r, err := q.LockSession(ctx, int64(id))
	return tenureOf(id, sqlcgen.LockSessionForHeartbeatRow(r), err)
}

// lockRenewal reads a session to extend it.
func lockRenewal(ctx context.Context, q *sqlcgen.Queries, id wire.SessionID) (*session.Record, error) {
	r, err := q.LockSessionForHeartbeat(ctx, int64(id))
	return tenureOf(id, r, err)
}

func tenureOf(id wire.SessionID, r sqlcgen.LockSessionForHeartbeatRow, err error) (*session.Record, error) {
	if errors.Is(err, pgx.ErrNoRows) {
		return &session.Record{ID: id}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("lock session: %w", err)
	}
	return &session.Record{ID: id, BootID: r.BootID, State: session.State(r.State), Remaining: pgconv.Seconds(r.LeftSeconds), AppliedRevision: r.AppliedRevision}, nil
}
