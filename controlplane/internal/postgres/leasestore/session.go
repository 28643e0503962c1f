package leasestore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/postgres/pgconv"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/shared/lease"
)

// shareTenures reads sessions and holds off their closing; renewals and
// settlement pass. One that does not exist is missing.
func ShareSessions(ctx context.Context, q *sqlcgen.Queries, ids []int64) (map[lease.SessionID]*lease.Tenure, error) {
	rows, err := q.ShareSessions(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("lock sessions: %w", err)
	}
	tenures := make(map[lease.SessionID]*lease.Tenure, len(rows))
	for _, r := range rows {
		id := lease.SessionID(r.ID)
		tenures[id] = &lease.Tenure{ID: id, Boot: r.BootID, State: lease.TenureState(r.State), Left: pgconv.Seconds(r.LeftSeconds), AppliedRev: r.AppliedRev}
	}
	return tenures, nil
}

// lockTenure reads a session to end it: nothing of it is under way meanwhile.
// One that does not exist has no state.
func lockTenure(ctx context.Context, q *sqlcgen.Queries, id lease.SessionID) (*lease.Tenure, error) {
	r, err := q.LockSession(ctx, int64(id))
	return tenureOf(id, sqlcgen.LockRenewalRow(r), err)
}

// lockRenewal reads a session to extend it.
func lockRenewal(ctx context.Context, q *sqlcgen.Queries, id lease.SessionID) (*lease.Tenure, error) {
	r, err := q.LockRenewal(ctx, int64(id))
	return tenureOf(id, r, err)
}

func tenureOf(id lease.SessionID, r sqlcgen.LockRenewalRow, err error) (*lease.Tenure, error) {
	if errors.Is(err, pgx.ErrNoRows) {
		return &lease.Tenure{ID: id}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("lock session: %w", err)
	}
	return &lease.Tenure{ID: id, Boot: r.BootID, State: lease.TenureState(r.State), Left: pgconv.Seconds(r.LeftSeconds), AppliedRev: r.AppliedRev}, nil
}
