package leasestore

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"modelgateway/controlplane/internal/leasing"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/shared/lease/rollback"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

func (l *Leases) LiveSessions(ctx context.Context) (map[wire.SessionID]string, error) {
	rows, err := l.db.Queries().ActiveSessions(ctx)
	live := make(map[wire.SessionID]string, len(rows))
	for _, row := range rows {
		live[wire.SessionID(row.ID)] = row.Name
	}
	return live, postgres.Translate("list sessions", err)
}

// ActiveSessions implements leasing.Store. The sessions are read before the
// state of the cluster: if commits are lost in between, the state shows it.
func (l *Leases) ActiveSessions(ctx context.Context, c wire.KeyChange) ([]session.ActiveSession, error) {
	rows, err := l.db.Queries().ActiveSessions(ctx)
	if err != nil {
		return nil, postgres.Translate("list sessions", err)
	}
	active := make([]session.ActiveSession, 0, len(rows)+1)
	for _, row := range rows {
		active = append(active, session.ActiveSession{
			Session:         wire.SessionID(row.ID),
			Proxy:           row.Name,
			AppliedRevision: row.AppliedRevision,
			Window:          time.Duration(row.WindowMs) * time.Millisecond,
		})
	}

	loss, err := l.db.Queries().Recovering(ctx)
	if err != nil {
		return nil, postgres.Translate("read the recovery wait", err)
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

	return append(active, rollback.UnknownSessions(loss.Recovering)...), nil
}

// restore inserts the earlier sessions of a proxy that Postgres has lost.
func restore(ctx context.Context, q *sqlcgen.Queries, r *wire.RegisterRequest, below wire.SessionID, window time.Duration) error {
	for _, e := range r.Earlier {
		if e.Session <= 0 || e.Session >= below {
			continue
		}
		if err := q.RestoreSession(ctx, sqlcgen.RestoreSessionParams{
			ID:       int64(e.Session),
			Name:     r.Name,
			BootID:   e.BootID,
			WindowMs: window.Milliseconds(),
		}); err != nil {
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
