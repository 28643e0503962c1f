package leasestore

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"modelgateway/controlplane/internal/leasing"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/pgconv"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/shared/lease/rollback"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

// LiveSessions implements leasing.Store.
func (l *Store) LiveSessions(ctx context.Context) ([]wire.SessionID, error) {
	rows, err := l.db.Queries().ActiveSessions(ctx)
	live := make([]wire.SessionID, len(rows))
	for i, row := range rows {
		live[i] = wire.SessionID(row.ID)
	}
	return live, postgres.Translate("list sessions", err)
}

// PendingSessions implements leasing.Store. The sessions are read before the
// state of the cluster: if commits are lost in between, the state shows it.
func (l *Store) PendingSessions(ctx context.Context, c wire.KeyChange, ttl, margin time.Duration) ([]session.PendingSession, error) {
	rows, err := l.db.Queries().ActiveSessions(ctx)
	if err != nil {
		return nil, postgres.Translate("list sessions", err)
	}
	var pending []session.PendingSession
	for _, row := range rows {
		r := session.Record{ID: wire.SessionID(row.ID), State: session.Active, Remaining: pgconv.Seconds(row.LeftSeconds), AppliedRevision: row.AppliedRevision}
		if r.Behind(c.Revision) {
			pending = append(pending, session.PendingSession{Session: r.ID, Remaining: r.Remaining})
		}
	}
	sinceLoss, err := l.db.Queries().SinceLoss(ctx)
	if err != nil {
		return nil, postgres.Translate("read time of the last loss", err)
	}
	if c.Kind == wire.KeyRevoked {
		revoked, err := l.db.Queries().IsRevoked(ctx, c.KeyHash[:])
		if err != nil {
			return nil, postgres.Translate("read revocation", err)
		}
		if !revoked {
			return nil, leasing.ErrChangeLost
		}
	}
	return append(pending, rollback.UnknownSessions(pgconv.Seconds(sinceLoss), ttl, margin)...), nil
}

// restore inserts the earlier sessions of a proxy that Postgres has lost.
func restore(ctx context.Context, q *sqlcgen.Queries, r *wire.RegisterRequest, below wire.SessionID) error {
	for _, e := range r.Earlier {
		if e.Session <= 0 || e.Session >= below {
			continue
		}
		if err := q.RestoreSession(ctx, sqlcgen.RestoreSessionParams{ID: int64(e.Session), Name: r.Name, BootID: e.BootID}); err != nil {
			return fmt.Errorf("restore session %d: %w", e.Session, err)
		}
	}
	return nil
}

// refusedOf encodes the refused credentials of a heartbeat as JSON.
func refusedOf(r *wire.HeartbeatRequest) ([]byte, error) {
	if len(r.Refused) == 0 {
		return []byte("[]"), nil
	}
	text, err := json.Marshal(r.Refused)
	if err != nil {
		return nil, fmt.Errorf("encode refused credentials: %w", err)
	}
	return text, nil
}
