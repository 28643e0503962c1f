package operationsapi

import (
	"context"
	"slices"

	"modelgateway/controlplane/internal/httpapi/convert"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/search"
	"modelgateway/controlplane/internal/signin"
)

func (h *Handlers) ListConsoleSessions(
	ctx context.Context,
	_ *gen.Call,
	r gen.ListConsoleSessionsRequestObject,
) (gen.ListConsoleSessionsResponseObject, error) {
	sessions, err := h.Sessions.List(ctx)
	if err != nil {
		return nil, err
	}
	slices.Reverse(sessions)
	sessions, cursor, err := convert.Paginate(r.Params.Limit, r.Params.Cursor, sessions, func(s *signin.Session) []byte { return s.ID[:] })
	return gen.ListConsoleSessions200JSONResponse{Data: convert.All(sessions, sessionView), NextCursor: cursor}, err
}

func (h *Handlers) EndConsoleSession(
	ctx context.Context,
	_ *gen.Call,
	r gen.EndConsoleSessionRequestObject,
) (gen.EndConsoleSessionResponseObject, error) {
	id, err := signin.ParseID(r.SessionID)
	if err != nil {
		return nil, err
	}
	if err := h.Sessions.Revoke(ctx, id); err != nil {
		return nil, err
	}
	return gen.EndConsoleSession204Response{}, nil
}

func sessionView(s *signin.Session) gen.ConsoleSession {
	view := gen.ConsoleSession{
		ID:         s.ID.String(),
		Name:       s.Name,
		Scopes:     []gen.Scope{},
		Method:     gen.ConsoleSessionMethod(s.Method),
		Address:    s.Address,
		Agent:      s.Agent,
		CreatedAt:  s.CreatedAt,
		LastUsedAt: s.LastUsedAt,
		ExpiresAt:  s.ExpiresAt,
	}
	for _, scope := range s.Scopes {
		view.Scopes = append(view.Scopes, gen.Scope(scope))
	}
	return view
}

func (h *Handlers) Search(ctx context.Context, _ *gen.Call, r gen.SearchRequestObject) (gen.SearchResponseObject, error) {
	found, err := h.Finder.Find(ctx, r.Params.Q)
	if err != nil {
		return nil, err
	}
	return gen.Search200JSONResponse{Data: convert.All(found, func(r *search.Result) gen.SearchResult {
		return gen.SearchResult{
			Type:       gen.SearchResultType(r.Type),
			ID:         r.ID,
			Name:       convert.Optional(r.Name),
			ExternalID: convert.Optional(r.ExternalID),
			AccountID:  convert.Optional(r.AccountID),
		}
	})}, nil
}
