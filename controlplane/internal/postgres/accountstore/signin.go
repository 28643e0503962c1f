package accountstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/admin"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/changestore"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/signin"
	"modelgateway/shared/ident"
)

// Sessions keeps sessions.
type Sessions struct{ db *postgres.DB }

// NewSessions returns a store that uses db.
func NewSessions(db *postgres.DB) *Sessions { return &Sessions{db} }

var _ signin.Store = (*Sessions)(nil)

func (s *Sessions) Create(ctx context.Context, session *signin.Session, secret signin.Hash, length time.Duration) error {
	return s.db.InTx(ctx, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		var token []byte
		if session.TokenHash != nil {
			token = session.TokenHash[:]
		}

		row, err := q.InsertConsoleSession(ctx, sqlcgen.InsertConsoleSessionParams{
			ID:            ident.UUID(session.ID),
			SecretHash:    secret[:],
			TokenHash:     token,
			Name:          session.Name,
			Scopes:        postgres.Strings(session.Scopes),
			Method:        string(session.Method),
			Address:       session.Address,
			Agent:         session.Agent,
			LengthSeconds: length.Seconds(),
		})
		if err != nil {
			return postgres.Translate("insert console session", err)
		}

		session.CreatedAt = row.CreatedAt
		session.LastUsedAt = row.LastUsedAt
		session.ExpiresAt = row.ExpiresAt
		session.ReadAt = row.CreatedAt
		return postgres.Translate("write audit entry", changestore.InsertAudit(ctx, q, "console.sign_in", session.ID, nil, session))
	})
}

func (s *Sessions) Use(ctx context.Context, secret signin.Hash, idle time.Duration) (*signin.Session, error) {
	row, err := s.db.Queries().UseConsoleSession(ctx, sqlcgen.UseConsoleSessionParams{SecretHash: secret[:], IdleSeconds: idle.Seconds()})
	if err != nil {
		return nil, postgres.NotFoundAs("find console session", err, signin.ErrNoSession)
	}

	session := toSession(&sqlcgen.ConsoleSession{
		ID:         row.ID,
		TokenHash:  row.TokenHash,
		Name:       row.Name,
		Scopes:     row.Scopes,
		Method:     row.Method,
		Address:    row.Address,
		Agent:      row.Agent,
		CreatedAt:  row.CreatedAt,
		LastUsedAt: row.LastUsedAt,
		ExpiresAt:  row.ExpiresAt,
	})
	session.ReadAt = row.ReadAt

	return &session, nil
}

func (s *Sessions) List(ctx context.Context, idle time.Duration) ([]signin.Session, error) {
	rows, err := s.db.Queries().ListConsoleSessions(ctx, idle.Seconds())
	sessions := make([]signin.Session, len(rows))
	for i := range rows {
		sessions[i] = toSession(&rows[i])
	}
	return sessions, postgres.Translate("list console sessions", err)
}

func (s *Sessions) End(ctx context.Context, id signin.ID) error {
	return s.db.InTx(ctx, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		row, err := q.EndConsoleSession(ctx, ident.UUID(id))
		if err != nil {
			return postgres.NotFoundAs("end console session", err, signin.ErrNoSession)
		}
		session := toSession(&row)
		return postgres.Translate("write audit entry", changestore.InsertAudit(ctx, q, "console.sign_out", id, session, nil))
	})
}

func (s *Sessions) Failed(ctx context.Context, reason string) error {
	return changestore.NewAudit(s.db).Record(ctx, "console.sign_in_failed", reason)
}

// DeleteOld deletes sessions that ended 30 days ago.
func (s *Sessions) DeleteOld(ctx context.Context) error {
	_, err := s.db.Queries().RemoveConsoleSessions(ctx)
	return postgres.Translate("delete console sessions", err)
}

func toSession(row *sqlcgen.ConsoleSession) signin.Session {
	session := signin.Session{
		ID:         signin.ID(row.ID),
		Name:       row.Name,
		Method:     admin.Method(row.Method),
		Address:    row.Address,
		Agent:      row.Agent,
		CreatedAt:  row.CreatedAt,
		LastUsedAt: row.LastUsedAt,
		ExpiresAt:  row.ExpiresAt,
	}
	if len(row.TokenHash) > 0 {
		hash := admin.Hash(row.TokenHash)
		session.TokenHash = &hash
	}

	for _, scope := range row.Scopes {
		session.Scopes = append(session.Scopes, admin.Scope(scope))
	}

	return session
}
