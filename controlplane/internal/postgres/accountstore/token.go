package accountstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/admin"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/changestore"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
)

// Tokens keeps admin tokens.
type Tokens struct{ db *postgres.DB }

// NewTokens returns a store that uses db.
func NewTokens(db *postgres.DB) *Tokens { return &Tokens{db} }

func (s *Tokens) Create(ctx context.Context, t admin.Token, h admin.Hash) (made admin.Token, err error) {
	err = s.db.InTx(ctx, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		row, err := q.InsertToken(ctx, sqlcgen.InsertTokenParams{
			ID:            ident.UUID(t.ID),
			Name:          t.Name,
			TokenHash:     h[:],
			Scopes:        postgres.Strings(t.Scopes),
			ExpiresAt:     t.ExpiresAt,
			CreditsPerDay: (*int64)(t.Limits.CreditsPerDay),
			RevealsPerDay: t.Limits.RevealsPerDay,
		})
		if errors.Is(err, pgx.ErrNoRows) {
			return admin.ErrIssued
		}
		if err != nil {
			return postgres.Translate("insert token", err)
		}

		made = toToken(&row)
		return postgres.Translate("write audit entry", changestore.InsertAudit(ctx, q, "token.create", t.ID, nil, made))
	})
	return made, err
}

func (s *Tokens) List(ctx context.Context) ([]admin.Token, error) {
	rows, err := s.db.Queries().ListTokens(ctx)
	tokens := make([]admin.Token, len(rows))
	for i := range rows {
		tokens[i] = toToken(&rows[i])
	}
	return tokens, postgres.Translate("list tokens", err)
}

func (s *Tokens) Revoke(ctx context.Context, id admin.ID) error {
	return s.db.InTx(ctx, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		row, err := q.RevokeToken(ctx, ident.UUID(id))
		if err != nil {
			return postgres.NotFoundAs("revoke token", err, admin.ErrNotFound)
		}
		return postgres.Translate("write audit entry", changestore.InsertAudit(ctx, q, "token.revoke", id, nil, toToken(&row)))
	})
}

func (s *Tokens) Use(ctx context.Context, h admin.Hash) (t admin.Token, expired bool, err error) {
	row, err := s.db.Queries().GetToken(ctx, h[:])
	if err != nil {
		return admin.Token{}, false, postgres.NotFoundAs("find token", err, admin.ErrNotFound)
	}
	if row.TouchDue {
		if err := s.db.Queries().TouchToken(ctx, row.AdminToken.ID); err != nil {
			return admin.Token{}, false, postgres.Translate("record use of token", err)
		}
	}
	return toToken(&row.AdminToken), row.Expired, nil
}

func toToken(row *sqlcgen.AdminToken) admin.Token {
	t := admin.Token{
		ID:         admin.ID(row.ID),
		Name:       row.Name,
		ExpiresAt:  row.ExpiresAt,
		LastUsedAt: row.LastUsedAt,
		RevokedAt:  row.RevokedAt,
		CreatedAt:  row.CreatedAt,
		Limits:     admin.Limits{CreditsPerDay: (*money.Nano)(row.CreditsPerDay), RevealsPerDay: row.RevealsPerDay},
	}
	for _, scope := range row.Scopes {
		t.Scopes = append(t.Scopes, admin.Scope(scope))
	}
	return t
}
