package operationsapi

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
	"modelgateway/controlplane/internal/httpapi/convert"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/httpapi/trafficapi"
	"modelgateway/controlplane/internal/validation"
)

func (h *Handlers) ListProxies(ctx context.Context, _ *gen.Call, _ gen.ListProxiesRequestObject) (gen.ListProxiesResponseObject, error) {
	f, err := h.Fleet.Fleet(ctx)
	if err != nil {
		return nil, err
	}

	closed, _, err := h.Catalog.Maintenance(ctx)
	if err != nil {
		return nil, err
	}

	now := time.Now()
	closed = slices.DeleteFunc(closed, func(m catalog.MaintenanceEntry) bool { return !m.Active(now) })
	return gen.ListProxies200JSONResponse{
		Revision:           f.Rev,
		CatalogRevision:    f.CatalogRev,
		Recovering:         f.Recovering,
		CommitsLostAt:      f.LostAt,
		Maintenance:        convert.All(closed, maintenanceView),
		RefusedCredentials: convert.All(f.RefusedCredentials, trafficapi.RefusedCredential),
		Data: convert.All(f.Proxies, func(d *fleet.Proxy) gen.Proxy {
			return gen.Proxy{
				Session:         d.Session,
				Name:            d.Name,
				BootID:          d.BootID,
				Build:           d.Build,
				State:           gen.ProxyState(d.State),
				Draining:        d.Draining,
				ValidUntil:      d.ValidUntil,
				RegisteredAt:    d.RegisteredAt,
				RenewedAt:       d.RenewedAt,
				AppliedRevision: d.AppliedRev,
				CatalogRevision: d.CatalogRev,
				Running:         d.Running,
				Unsettled:       d.Unsettled(),
				SpoolUsed:       d.SpoolUsed,
				SpoolCapacity:   d.SpoolCapacity,
			}
		}),
	}, nil
}

func (h *Handlers) ListAudit(ctx context.Context, _ *gen.Call, r gen.ListAuditRequestObject) (gen.ListAuditResponseObject, error) {
	p, before, err := convert.ReadPageByNumber(r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}

	q := audit.Query{
		Object:    convert.Text(r.Params.Object),
		Actor:     convert.Text(r.Params.Actor),
		Action:    convert.Text(r.Params.Action),
		RequestID: convert.Text(r.Params.RequestID),
		From:      convert.Value(r.Params.From),
		To:        convert.Value(r.Params.To),
		Before:    before,
		Limit:     p.Limit + 1,
	}

	var invalid validation.Errors
	if convert.CheckTimeRange(&invalid, q.From, q.To); invalid.Err() != nil {
		return nil, invalid.Err()
	}

	found, err := h.Audit.List(ctx, q)
	if err != nil {
		return nil, err
	}

	if !admin.SeesProviderCost(ctx) {
		for i := range found {
			if e := &found[i]; e.Action == catalog.ApplyAction {
				if e.After, err = catalog.HideProviderPrices(e.After); err != nil {
					return nil, err
				}
			}
		}
	}

	found, cursor := convert.NextPage(p, found, func(e *audit.Entry) []byte { return strconv.AppendInt(nil, e.ID, 10) })
	return gen.ListAudit200JSONResponse{
		NextCursor: cursor,
		Data: convert.All(found, func(e *audit.Entry) gen.AuditEntry {
			return gen.AuditEntry{
				ID:        e.ID,
				At:        e.At,
				Actor:     e.Actor,
				Action:    e.Action,
				Object:    e.Object,
				RequestID: convert.Optional(e.RequestID),
				Before:    whole(e.Before),
				After:     whole(e.After),
			}
		}),
	}, nil
}

// whole returns a JSON value as it is; nil if there is none.
func whole(text json.RawMessage) any {
	if text == nil {
		return nil
	}
	return text
}

func (h *Handlers) GetIdentity(ctx context.Context, _ *gen.Call, _ gen.GetIdentityRequestObject) (gen.GetIdentityResponseObject, error) {
	p := admin.PrincipalOf(ctx)
	view := gen.Identity{
		Name:          p.Name,
		Method:        gen.IdentityMethod(p.Method),
		ExpiresAt:     p.ExpiresAt,
		RevealsPerDay: p.Limits.RevealsPerDay,
	}
	if limit := p.Limits.CreditsPerDay; limit != nil {
		view.CreditsPerDay = convert.Optional(limit.String())
	}
	for _, scope := range p.Scopes {
		view.Scopes = append(view.Scopes, gen.Scope(scope))
	}
	return gen.GetIdentity200JSONResponse(view), nil
}

func (h *Handlers) CreateToken(ctx context.Context, call *gen.Call, r gen.CreateTokenRequestObject) (gen.CreateTokenResponseObject, error) {
	wanted := admin.Token{ID: admin.ID(call.OperationID), Name: r.Body.Name, ExpiresAt: r.Body.ExpiresAt}
	for _, scope := range r.Body.Scopes {
		wanted.Scopes = append(wanted.Scopes, admin.Scope(scope))
	}
	limit, err := convert.Amount("credits_per_day", r.Body.CreditsPerDay)
	if err != nil {
		return nil, err
	}
	wanted.Limits = admin.Limits{CreditsPerDay: limit, RevealsPerDay: r.Body.RevealsPerDay}
	t, text, err := h.Tokens.Create(ctx, wanted)
	if err != nil {
		return nil, err
	}
	return gen.CreateToken201JSONResponse{Token: tokenView(&t), Secret: text}, nil
}

func (h *Handlers) ListTokens(ctx context.Context, _ *gen.Call, r gen.ListTokensRequestObject) (gen.ListTokensResponseObject, error) {
	tokens, err := h.Tokens.List(ctx)
	if err != nil {
		return nil, err
	}
	tokens, cursor, err := convert.Paginate(r.Params.Limit, r.Params.Cursor, tokens, func(t *admin.Token) []byte { return t.ID[:] })
	return gen.ListTokens200JSONResponse{Data: convert.All(tokens, tokenView), NextCursor: cursor}, err
}

func (h *Handlers) RevokeToken(ctx context.Context, _ *gen.Call, r gen.RevokeTokenRequestObject) (gen.RevokeTokenResponseObject, error) {
	id, err := admin.ParseID(r.TokenID)
	if err != nil {
		return nil, err
	}
	if err := h.Tokens.Revoke(ctx, id); err != nil {
		return nil, err
	}
	return gen.RevokeToken204Response{}, nil
}

func tokenView(t *admin.Token) gen.Token {
	view := gen.Token{
		ID:            t.ID.String(),
		Name:          t.Name,
		ExpiresAt:     t.ExpiresAt,
		LastUsedAt:    t.LastUsedAt,
		RevokedAt:     t.RevokedAt,
		CreatedAt:     t.CreatedAt,
		RevealsPerDay: t.Limits.RevealsPerDay,
	}
	if limit := t.Limits.CreditsPerDay; limit != nil {
		view.CreditsPerDay = convert.Optional(limit.String())
	}

	for _, scope := range t.Scopes {
		view.Scopes = append(view.Scopes, gen.Scope(scope))
	}

	return view
}
