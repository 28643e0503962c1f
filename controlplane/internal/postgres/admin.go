package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/admin"
	"modelgateway/controlplane/internal/audit"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/shared/ident"
)

// TokenStore keeps admin tokens; it implements admin.Store.
type TokenStore struct{ *DB }

// Create implements admin.Store.
func (s TokenStore) Create(ctx context.Context, t admin.Token, h admin.Hash) (made admin.Token, err error) {
	err = s.InTx(ctx, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		row, err := q.InsertToken(ctx, sqlcgen.InsertTokenParams{
			ID: ident.UUID(t.ID), Name: t.Name, TokenHash: h[:], Scopes: textsOf(t.Scopes), ExpiresAt: t.ExpiresAt,
		})
		if errors.Is(err, pgx.ErrNoRows) {
			return admin.ErrIssued
		}
		if err != nil {
			return Translate("insert token", err)
		}
		made = toToken(&row)
		return Translate("note token", note(ctx, q, "token.create", t.ID, nil, made))
	})
	return made, err
}

// List implements admin.Store.
func (s TokenStore) List(ctx context.Context) ([]admin.Token, error) {
	rows, err := s.q.ListTokens(ctx)
	tokens := make([]admin.Token, len(rows))
	for i := range rows {
		tokens[i] = toToken(&rows[i])
	}
	return tokens, Translate("list tokens", err)
}

// Revoke implements admin.Store.
func (s TokenStore) Revoke(ctx context.Context, id admin.ID) error {
	return s.InTx(ctx, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		row, err := q.RevokeToken(ctx, ident.UUID(id))
		if err != nil {
			return missing("revoke token", err, admin.ErrNotFound)
		}
		return Translate("note token", note(ctx, q, "token.revoke", id, nil, toToken(&row)))
	})
}

// Use implements admin.Store.
func (s TokenStore) Use(ctx context.Context, h admin.Hash) (t admin.Token, expired bool, err error) {
	row, err := s.q.GetToken(ctx, h[:])
	if err != nil {
		return admin.Token{}, false, missing("find token", err, admin.ErrNotFound)
	}
	if row.Unnoted {
		if err := s.q.TouchToken(ctx, row.AdminToken.ID); err != nil {
			return admin.Token{}, false, Translate("note use of token", err)
		}
	}
	return toToken(&row.AdminToken), row.Expired, nil
}

func toToken(row *sqlcgen.AdminToken) admin.Token {
	t := admin.Token{
		ID: admin.ID(row.ID), Name: row.Name, ExpiresAt: row.ExpiresAt, LastUsedAt: row.LastUsedAt,
		RevokedAt: row.RevokedAt, CreatedAt: row.CreatedAt,
	}
	for _, scope := range row.Scopes {
		t.Scopes = append(t.Scopes, admin.Scope(scope))
	}
	return t
}

func textsOf[T ~string](values []T) []string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = string(v)
	}
	return texts
}

// AuditStore reads the audit log; it implements audit.Store.
type AuditStore struct{ *DB }

// List implements audit.Store.
func (s AuditStore) List(ctx context.Context, query audit.Query) ([]audit.Entry, error) {
	rows, err := s.q.ListAudit(ctx, sqlcgen.ListAuditParams{Object: query.Object, BeforeID: query.Before, RowLimit: int32(query.Limit)})
	entries := make([]audit.Entry, len(rows))
	for i, row := range rows {
		entries[i] = audit.Entry{
			ID: row.ID, At: row.At, Actor: row.Actor, Action: row.Action, Object: row.Object,
			Before: row.Before, After: row.After, RequestID: row.RequestID,
		}
	}
	return entries, Translate("list audit log", err)
}
