package leasestore

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/pgconv"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/shared/wire"
)

// Standing implements leasing.Store.
func (l *Store) Standing(ctx context.Context, c wire.KeyChange) (stands bool, sinceLoss time.Duration, err error) {
	since, err := l.db.Queries().SinceLoss(ctx)
	if err != nil {
		return false, 0, postgres.Translate("read epoch", err)
	}
	if stands = true; c.Kind == wire.KeyRevoked {
		stands, err = l.db.Queries().IsRevoked(ctx, c.KeyHash[:])
	}
	return stands, pgconv.Seconds(since), postgres.Translate("read revocation", err)
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

// refusedOf encodes the refused credentials of a heartbeat.
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
