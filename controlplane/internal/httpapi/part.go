package httpapi

import (
	"context"
	"encoding/json"
	"fmt"

	"modelgateway/controlplane/internal/catalog"
	"modelgateway/controlplane/internal/etag"
	"modelgateway/controlplane/internal/httpapi/gen"
)

// The single entries of the catalog: each operation names the part that it is
// about and the answers that it has.

// getPart reads an entry.
func getPart[E any](ctx context.Context, s *server, part catalog.Part[E]) (E, error) {
	entry, tag, err := catalog.Get(ctx, s.cfg.Catalog, part)
	if err == nil {
		setETag(ctx, tag)
	}
	return entry, err
}

// putPart makes or replaces an entry.
func putPart[E any](ctx context.Context, s *server, part catalog.Part[E], entry *E, ifMatch *string) (now E, created bool, err error) {
	match, err := etag.Parse(orEmpty(ifMatch))
	if err != nil {
		return now, false, err
	}
	now, tag, created, err := catalog.Put(ctx, s.cfg.Catalog, part, *entry, match)
	if err == nil {
		setETag(ctx, tag)
	}
	return now, created, err
}

// patchPart changes an entry.
func patchPart[E any](ctx context.Context, s *server, part catalog.Part[E], patch *json.RawMessage, ifMatch *string) (now E, err error) {
	match, err := etag.Parse(orEmpty(ifMatch))
	if err != nil {
		return now, err
	}
	now, tag, err := catalog.Patch(ctx, s.cfg.Catalog, part, *patch, match)
	if err == nil {
		setETag(ctx, tag)
	}
	return now, err
}

// deletePart removes an entry.
func deletePart[E any](ctx context.Context, s *server, part catalog.Part[E], ifMatch *string) error {
	match, err := etag.Parse(orEmpty(ifMatch))
	if err != nil {
		return err
	}
	return catalog.Delete(ctx, s.cfg.Catalog, part, match)
}

// ListProviders implements gen.StrictServerInterface.
func (s *server) ListProviders(ctx context.Context, r gen.ListProvidersRequestObject) (gen.ListProvidersResponseObject, error) {
	found, err := catalog.List(ctx, s.cfg.Catalog, catalog.ProviderPart(""))
	if err != nil {
		return nil, err
	}
	found, cursor, err := cut(r.Params.Limit, r.Params.Cursor, found, func(e *catalog.ProviderEntry) []byte { return []byte(e.ID) })
	return gen.ListProviders200JSONResponse{Data: found, NextCursor: cursor}, err
}

// GetProvider implements gen.StrictServerInterface.
func (s *server) GetProvider(ctx context.Context, r gen.GetProviderRequestObject) (gen.GetProviderResponseObject, error) {
	entry, err := getPart(ctx, s, catalog.ProviderPart(r.ProviderID))
	if err != nil {
		return nil, err
	}
	return gen.GetProvider200JSONResponse(entry), nil
}

// PutProvider implements gen.StrictServerInterface.
func (s *server) PutProvider(ctx context.Context, r gen.PutProviderRequestObject) (gen.PutProviderResponseObject, error) {
	entry, created, err := putPart(ctx, s, catalog.ProviderPart(r.ProviderID), r.Body, r.Params.IfMatch)
	switch {
	case err != nil:
		return nil, err
	case created:
		return gen.PutProvider201JSONResponse(entry), nil
	default:
		return gen.PutProvider200JSONResponse(entry), nil
	}
}

// UpdateProvider implements gen.StrictServerInterface.
func (s *server) UpdateProvider(ctx context.Context, r gen.UpdateProviderRequestObject) (gen.UpdateProviderResponseObject, error) {
	entry, err := patchPart(ctx, s, catalog.ProviderPart(r.ProviderID), r.Body, r.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	return gen.UpdateProvider200JSONResponse(entry), nil
}

// DeleteProvider implements gen.StrictServerInterface.
func (s *server) DeleteProvider(ctx context.Context, r gen.DeleteProviderRequestObject) (gen.DeleteProviderResponseObject, error) {
	if err := deletePart(ctx, s, catalog.ProviderPart(r.ProviderID), r.Params.IfMatch); err != nil {
		return nil, err
	}
	return gen.DeleteProvider204Response{}, nil
}

// ListCredentials implements gen.StrictServerInterface.
func (s *server) ListCredentials(ctx context.Context, r gen.ListCredentialsRequestObject) (gen.ListCredentialsResponseObject, error) {
	found, err := catalog.List(ctx, s.cfg.Catalog, catalog.CredentialPart(r.ProviderID, ""))
	if err != nil {
		return nil, err
	}
	found, cursor, err := cut(r.Params.Limit, r.Params.Cursor, found, func(e *catalog.CredentialEntry) []byte { return []byte(e.Name) })
	return gen.ListCredentials200JSONResponse{Data: found, NextCursor: cursor}, err
}

// GetCredential implements gen.StrictServerInterface.
func (s *server) GetCredential(ctx context.Context, r gen.GetCredentialRequestObject) (gen.GetCredentialResponseObject, error) {
	entry, err := getPart(ctx, s, catalog.CredentialPart(r.ProviderID, r.Credential))
	if err != nil {
		return nil, err
	}
	return gen.GetCredential200JSONResponse(entry), nil
}

// PutCredential implements gen.StrictServerInterface.
func (s *server) PutCredential(ctx context.Context, r gen.PutCredentialRequestObject) (gen.PutCredentialResponseObject, error) {
	entry, created, err := putPart(ctx, s, catalog.CredentialPart(r.ProviderID, r.Credential), r.Body, r.Params.IfMatch)
	switch {
	case err != nil:
		return nil, err
	case created:
		return gen.PutCredential201JSONResponse(entry), nil
	default:
		return gen.PutCredential200JSONResponse(entry), nil
	}
}

// UpdateCredential implements gen.StrictServerInterface.
func (s *server) UpdateCredential(ctx context.Context, r gen.UpdateCredentialRequestObject) (gen.UpdateCredentialResponseObject, error) {
	entry, err := patchPart(ctx, s, catalog.CredentialPart(r.ProviderID, r.Credential), r.Body, r.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	return gen.UpdateCredential200JSONResponse(entry), nil
}

// DeleteCredential implements gen.StrictServerInterface.
func (s *server) DeleteCredential(ctx context.Context, r gen.DeleteCredentialRequestObject) (gen.DeleteCredentialResponseObject, error) {
	if err := deletePart(ctx, s, catalog.CredentialPart(r.ProviderID, r.Credential), r.Params.IfMatch); err != nil {
		return nil, err
	}
	return gen.DeleteCredential204Response{}, nil
}

// ListModels implements gen.StrictServerInterface.
func (s *server) ListModels(ctx context.Context, r gen.ListModelsRequestObject) (gen.ListModelsResponseObject, error) {
	found, err := catalog.List(ctx, s.cfg.Catalog, catalog.ModelPart(""))
	if err != nil {
		return nil, err
	}
	found, cursor, err := cut(r.Params.Limit, r.Params.Cursor, found, func(e *catalog.ModelEntry) []byte { return []byte(e.ID) })
	return gen.ListModels200JSONResponse{Data: found, NextCursor: cursor}, err
}

// GetModel implements gen.StrictServerInterface.
func (s *server) GetModel(ctx context.Context, r gen.GetModelRequestObject) (gen.GetModelResponseObject, error) {
	entry, err := getPart(ctx, s, catalog.ModelPart(r.ModelID))
	if err != nil {
		return nil, err
	}
	return gen.GetModel200JSONResponse(entry), nil
}

// PutModel implements gen.StrictServerInterface.
func (s *server) PutModel(ctx context.Context, r gen.PutModelRequestObject) (gen.PutModelResponseObject, error) {
	entry, created, err := putPart(ctx, s, catalog.ModelPart(r.ModelID), r.Body, r.Params.IfMatch)
	switch {
	case err != nil:
		return nil, err
	case created:
		return gen.PutModel201JSONResponse(entry), nil
	default:
		return gen.PutModel200JSONResponse(entry), nil
	}
}

// UpdateModel implements gen.StrictServerInterface.
func (s *server) UpdateModel(ctx context.Context, r gen.UpdateModelRequestObject) (gen.UpdateModelResponseObject, error) {
	entry, err := patchPart(ctx, s, catalog.ModelPart(r.ModelID), r.Body, r.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	return gen.UpdateModel200JSONResponse(entry), nil
}

// DeleteModel implements gen.StrictServerInterface.
func (s *server) DeleteModel(ctx context.Context, r gen.DeleteModelRequestObject) (gen.DeleteModelResponseObject, error) {
	if err := deletePart(ctx, s, catalog.ModelPart(r.ModelID), r.Params.IfMatch); err != nil {
		return nil, err
	}
	return gen.DeleteModel204Response{}, nil
}

// routePosition rises as routes are listed: by priority, provider and name.
func routePosition(e *catalog.RouteEntry) []byte {
	return fmt.Appendf(nil, "%016x%s\x00%s\x00%s", e.Priority, e.Provider, e.UpstreamModel, e.ID)
}

// ListRoutes implements gen.StrictServerInterface.
func (s *server) ListRoutes(ctx context.Context, r gen.ListRoutesRequestObject) (gen.ListRoutesResponseObject, error) {
	found, err := catalog.List(ctx, s.cfg.Catalog, catalog.RoutePart(r.ModelID, ""))
	if err != nil {
		return nil, err
	}
	found, cursor, err := cut(r.Params.Limit, r.Params.Cursor, found, routePosition)
	return gen.ListRoutes200JSONResponse{Data: found, NextCursor: cursor}, err
}

// GetRoute implements gen.StrictServerInterface.
func (s *server) GetRoute(ctx context.Context, r gen.GetRouteRequestObject) (gen.GetRouteResponseObject, error) {
	entry, err := getPart(ctx, s, catalog.RoutePart(r.ModelID, r.RouteID))
	if err != nil {
		return nil, err
	}
	return gen.GetRoute200JSONResponse(entry), nil
}

// PutRoute implements gen.StrictServerInterface.
func (s *server) PutRoute(ctx context.Context, r gen.PutRouteRequestObject) (gen.PutRouteResponseObject, error) {
	entry, created, err := putPart(ctx, s, catalog.RoutePart(r.ModelID, r.RouteID), r.Body, r.Params.IfMatch)
	switch {
	case err != nil:
		return nil, err
	case created:
		return gen.PutRoute201JSONResponse(entry), nil
	default:
		return gen.PutRoute200JSONResponse(entry), nil
	}
}

// UpdateRoute implements gen.StrictServerInterface.
func (s *server) UpdateRoute(ctx context.Context, r gen.UpdateRouteRequestObject) (gen.UpdateRouteResponseObject, error) {
	entry, err := patchPart(ctx, s, catalog.RoutePart(r.ModelID, r.RouteID), r.Body, r.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	return gen.UpdateRoute200JSONResponse(entry), nil
}

// DeleteRoute implements gen.StrictServerInterface.
func (s *server) DeleteRoute(ctx context.Context, r gen.DeleteRouteRequestObject) (gen.DeleteRouteResponseObject, error) {
	if err := deletePart(ctx, s, catalog.RoutePart(r.ModelID, r.RouteID), r.Params.IfMatch); err != nil {
		return nil, err
	}
	return gen.DeleteRoute204Response{}, nil
}
