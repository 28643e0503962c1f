package httpapi

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"modelgateway/controlplane/internal/admin"
	"modelgateway/controlplane/internal/audit"
	"modelgateway/controlplane/internal/catalog"
	"modelgateway/controlplane/internal/fleet"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/idempotency"
)

// ListDataplanes implements gen.StrictServerInterface.
func (s *server) ListDataplanes(ctx context.Context, _ gen.ListDataplanesRequestObject) (gen.ListDataplanesResponseObject, error) {
	f, err := s.cfg.Fleet.Fleet(ctx)
	if err != nil {
		return nil, err
	}
	closed, _, err := s.cfg.Catalog.Maintenance(ctx)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	closed = slices.DeleteFunc(closed, func(m catalog.Maintained) bool { return !m.Active(now) })
	return gen.ListDataplanes200JSONResponse{
		Revision: f.Rev, CatalogRevision: f.CatalogRev, Maintenance: all(closed, maintenanceView),
		RefusedCredentials: all(f.Refused, func(r *fleet.Refused) gen.RefusedCredential {
			return gen.RefusedCredential{
				ProviderID: r.Provider, Credential: r.Credential, CredentialID: r.CredentialID,
				Reason: gen.RefusedCredentialReason(r.Reason), Since: r.Since, Dataplanes: r.Dataplanes,
			}
		}),
		Data: all(f.Dataplanes, func(d *fleet.Dataplane) gen.Dataplane {
			return gen.Dataplane{
				Session: d.Session, Name: d.Name, BootID: d.BootID, Build: d.Build, State: gen.DataplaneState(d.State), Draining: d.Draining,
				ValidUntil: d.ValidUntil, RegisteredAt: d.RegisteredAt, RenewedAt: d.RenewedAt,
				AppliedRevision: d.AppliedRev, CatalogRevision: d.CatalogRev,
				Running: d.Running, Unsettled: d.Unsettled(), SpoolUsed: d.SpoolUsed, SpoolCapacity: d.SpoolCapacity,
			}
		}),
	}, nil
}

// ListAudit implements gen.StrictServerInterface.
func (s *server) ListAudit(ctx context.Context, r gen.ListAuditRequestObject) (gen.ListAuditResponseObject, error) {
	p, err := readPage(r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	before, err := p.number()
	if err != nil {
		return nil, err
	}
	found, err := s.cfg.Audit.List(ctx, audit.Query{Object: orEmpty(r.Params.Object), Before: before, Limit: p.limit + 1})
	if err != nil {
		return nil, err
	}
	found, cursor := next(p, found, func(e *audit.Entry) []byte { return strconv.AppendInt(nil, e.ID, 10) })
	return gen.ListAudit200JSONResponse{
		NextCursor: cursor,
		Data: all(found, func(e *audit.Entry) gen.AuditEntry {
			return gen.AuditEntry{
				ID: e.ID, At: e.At, Actor: e.Actor, Action: e.Action, Object: e.Object, RequestID: present(e.RequestID),
				Before: whole(e.Before), After: whole(e.After),
			}
		}),
	}, nil
}

// whole is a JSON value as it is, or nothing.
func whole(text json.RawMessage) any {
	if text == nil {
		return nil
	}
	return text
}

// CreateToken implements gen.StrictServerInterface.
func (s *server) CreateToken(ctx context.Context, r gen.CreateTokenRequestObject) (gen.CreateTokenResponseObject, error) {
	wanted := admin.Token{ID: admin.ID(idempotency.Operation(ctx)), Name: r.Body.Name, ExpiresAt: r.Body.ExpiresAt}
	for _, scope := range r.Body.Scopes {
		wanted.Scopes = append(wanted.Scopes, admin.Scope(scope))
	}
	t, text, err := s.cfg.Tokens.Create(ctx, wanted)
	if err != nil {
		return nil, err
	}
	return gen.CreateToken201JSONResponse{Token: tokenView(&t), Secret: text}, nil
}

// ListTokens implements gen.StrictServerInterface.
func (s *server) ListTokens(ctx context.Context, r gen.ListTokensRequestObject) (gen.ListTokensResponseObject, error) {
	tokens, err := s.cfg.Tokens.List(ctx)
	if err != nil {
		return nil, err
	}
	tokens, cursor, err := cut(r.Params.Limit, r.Params.Cursor, tokens, func(t *admin.Token) []byte { return t.ID[:] })
	return gen.ListTokens200JSONResponse{Data: all(tokens, tokenView), NextCursor: cursor}, err
}

// RevokeToken implements gen.StrictServerInterface.
func (s *server) RevokeToken(ctx context.Context, r gen.RevokeTokenRequestObject) (gen.RevokeTokenResponseObject, error) {
	id, err := admin.ParseID(r.TokenID)
	if err != nil {
		return nil, err
	}
	if err := s.cfg.Tokens.Revoke(ctx, id); err != nil {
		return nil, err
	}
	return gen.RevokeToken204Response{}, nil
}

func tokenView(t *admin.Token) gen.Token {
	view := gen.Token{
		ID: t.ID.String(), Name: t.Name, ExpiresAt: t.ExpiresAt, LastUsedAt: t.LastUsedAt, RevokedAt: t.RevokedAt, CreatedAt: t.CreatedAt,
	}
	for _, scope := range t.Scopes {
		view.Scopes = append(view.Scopes, gen.Scope(scope))
	}
	return view
}
