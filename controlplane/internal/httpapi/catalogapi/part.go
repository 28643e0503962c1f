package catalogapi

import (
	"context"
	"encoding/json"
	"fmt"

	"modelgateway/controlplane/internal/admin"
	"modelgateway/controlplane/internal/catalog"
	"modelgateway/controlplane/internal/etag"
	"modelgateway/controlplane/internal/httpapi/convert"
	"modelgateway/controlplane/internal/httpapi/gen"
)

// The single entries of the catalog: each operation names the part that it is about and its responses.

func getPart[E any](ctx context.Context, h *Handlers, call *gen.Call, part catalog.Part[E]) (E, error) {
	entry, tag, err := catalog.Get(ctx, h.Catalog, part)
	if err == nil {
		call.ETag = tag
	}
	return entry, err
}

func putPart[E any](
	ctx context.Context,
	h *Handlers,
	call *gen.Call,
	part catalog.Part[E],
	entry *E,
	ifMatch, ifNoneMatch *string,
) (catalog.Edited[E], error) {
	match, err := etag.ParseForPut(convert.Text(ifMatch), convert.Text(ifNoneMatch))
	if err != nil {
		return catalog.Edited[E]{}, err
	}
	edited, err := catalog.Put(ctx, h.Catalog, part, *entry, match)
	if err != nil {
		return edited, err
	}
	call.ETag = edited.Tag
	call.Changes.AddCatalog(edited.Rev)
	return edited, nil
}

func patchPart[E any](
	ctx context.Context,
	h *Handlers,
	call *gen.Call,
	part catalog.Part[E],
	patch *json.RawMessage,
	ifMatch *string,
) (entry E, err error) {
	match, err := etag.Parse(convert.Text(ifMatch))
	if err != nil {
		return entry, err
	}
	edited, err := catalog.Patch(ctx, h.Catalog, part, *patch, match)
	if err != nil {
		return entry, err
	}
	call.ETag = edited.Tag
	call.Changes.AddCatalog(edited.Rev)
	return edited.Entry, nil
}

func deletePart[E any](ctx context.Context, h *Handlers, call *gen.Call, part catalog.Part[E], ifMatch *string) error {
	match, err := etag.Parse(convert.Text(ifMatch))
	if err != nil {
		return err
	}
	rev, err := catalog.Delete(ctx, h.Catalog, part, match)
	if err == nil {
		call.Changes.AddCatalog(rev)
	}
	return err
}

func (h *Handlers) ListProviders(
	ctx context.Context,
	_ *gen.Call,
	r gen.ListProvidersRequestObject,
) (gen.ListProvidersResponseObject, error) {
	found, err := catalog.List(ctx, h.Catalog, catalog.ProviderPart(""))
	if err != nil {
		return nil, err
	}
	found, cursor, err := convert.Paginate(
		r.Params.Limit,
		r.Params.Cursor,
		found,
		func(e *catalog.ProviderEntry) []byte { return []byte(e.ID) },
	)
	return gen.ListProviders200JSONResponse{Data: found, NextCursor: cursor}, err
}

func (h *Handlers) GetProvider(ctx context.Context, call *gen.Call, r gen.GetProviderRequestObject) (gen.GetProviderResponseObject, error) {
	entry, err := getPart(ctx, h, call, catalog.ProviderPart(r.ProviderID))
	if err != nil {
		return nil, err
	}
	return gen.GetProvider200JSONResponse(entry), nil
}

func (h *Handlers) PutProvider(ctx context.Context, call *gen.Call, r gen.PutProviderRequestObject) (gen.PutProviderResponseObject, error) {
	edited, err := putPart(ctx, h, call, catalog.ProviderPart(r.ProviderID), r.Body, r.Params.IfMatch, r.Params.IfNoneMatch)
	switch {
	case err != nil:
		return nil, err
	case edited.Created:
		return gen.PutProvider201JSONResponse(edited.Entry), nil
	default:
		return gen.PutProvider200JSONResponse(edited.Entry), nil
	}
}

func (h *Handlers) UpdateProvider(
	ctx context.Context,
	call *gen.Call,
	r gen.UpdateProviderRequestObject,
) (gen.UpdateProviderResponseObject, error) {
	entry, err := patchPart(ctx, h, call, catalog.ProviderPart(r.ProviderID), r.Body, r.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	return gen.UpdateProvider200JSONResponse(entry), nil
}

func (h *Handlers) DeleteProvider(
	ctx context.Context,
	call *gen.Call,
	r gen.DeleteProviderRequestObject,
) (gen.DeleteProviderResponseObject, error) {
	if err := deletePart(ctx, h, call, catalog.ProviderPart(r.ProviderID), r.Params.IfMatch); err != nil {
		return nil, err
	}
	return gen.DeleteProvider204Response{}, nil
}

func (h *Handlers) ListCredentials(
	ctx context.Context,
	_ *gen.Call,
	r gen.ListCredentialsRequestObject,
) (gen.ListCredentialsResponseObject, error) {
	found, err := catalog.List(ctx, h.Catalog, catalog.CredentialPart(r.ProviderID, ""))
	if err != nil {
		return nil, err
	}
	found, cursor, err := convert.Paginate(
		r.Params.Limit,
		r.Params.Cursor,
		found,
		func(e *catalog.CredentialEntry) []byte { return []byte(e.Name) },
	)
	return gen.ListCredentials200JSONResponse{Data: found, NextCursor: cursor}, err
}

func (h *Handlers) GetCredential(
	ctx context.Context,
	call *gen.Call,
	r gen.GetCredentialRequestObject,
) (gen.GetCredentialResponseObject, error) {
	entry, err := getPart(ctx, h, call, catalog.CredentialPart(r.ProviderID, r.Credential))
	if err != nil {
		return nil, err
	}
	return gen.GetCredential200JSONResponse(entry), nil
}

func (h *Handlers) PutCredential(
	ctx context.Context,
	call *gen.Call,
	r gen.PutCredentialRequestObject,
) (gen.PutCredentialResponseObject, error) {
	edited, err := putPart(ctx, h, call, catalog.CredentialPart(r.ProviderID, r.Credential), r.Body, r.Params.IfMatch, r.Params.IfNoneMatch)
	switch {
	case err != nil:
		return nil, err
	case edited.Created:
		return gen.PutCredential201JSONResponse(edited.Entry), nil
	default:
		return gen.PutCredential200JSONResponse(edited.Entry), nil
	}
}

func (h *Handlers) UpdateCredential(
	ctx context.Context,
	call *gen.Call,
	r gen.UpdateCredentialRequestObject,
) (gen.UpdateCredentialResponseObject, error) {
	entry, err := patchPart(ctx, h, call, catalog.CredentialPart(r.ProviderID, r.Credential), r.Body, r.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	return gen.UpdateCredential200JSONResponse(entry), nil
}

func (h *Handlers) DeleteCredential(
	ctx context.Context,
	call *gen.Call,
	r gen.DeleteCredentialRequestObject,
) (gen.DeleteCredentialResponseObject, error) {
	if err := deletePart(ctx, h, call, catalog.CredentialPart(r.ProviderID, r.Credential), r.Params.IfMatch); err != nil {
		return nil, err
	}
	return gen.DeleteCredential204Response{}, nil
}

func (h *Handlers) ListModels(ctx context.Context, _ *gen.Call, r gen.ListModelsRequestObject) (gen.ListModelsResponseObject, error) {
	found, err := catalog.List(ctx, h.Catalog, catalog.ModelPart(""))
	if err != nil {
		return nil, err
	}
	found, cursor, err := convert.Paginate(
		r.Params.Limit,
		r.Params.Cursor,
		found,
		func(e *catalog.ModelEntry) []byte { return []byte(e.ID) },
	)
	if !admin.SeesProviderCost(ctx) {
		for i := range found {
			found[i].HideProviderPrices()
		}
	}
	return gen.ListModels200JSONResponse{Data: found, NextCursor: cursor}, err
}

func (h *Handlers) GetModel(ctx context.Context, call *gen.Call, r gen.GetModelRequestObject) (gen.GetModelResponseObject, error) {
	entry, err := getPart(ctx, h, call, catalog.ModelPart(r.ModelID))
	if err != nil {
		return nil, err
	}
	if !admin.SeesProviderCost(ctx) {
		entry.HideProviderPrices()
	}
	return gen.GetModel200JSONResponse(entry), nil
}

func (h *Handlers) PutModel(ctx context.Context, call *gen.Call, r gen.PutModelRequestObject) (gen.PutModelResponseObject, error) {
	edited, err := putPart(ctx, h, call, catalog.ModelPart(r.ModelID), r.Body, r.Params.IfMatch, r.Params.IfNoneMatch)
	switch {
	case err != nil:
		return nil, err
	case edited.Created:
		return gen.PutModel201JSONResponse(edited.Entry), nil
	default:
		return gen.PutModel200JSONResponse(edited.Entry), nil
	}
}

func (h *Handlers) UpdateModel(ctx context.Context, call *gen.Call, r gen.UpdateModelRequestObject) (gen.UpdateModelResponseObject, error) {
	entry, err := patchPart(ctx, h, call, catalog.ModelPart(r.ModelID), r.Body, r.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	return gen.UpdateModel200JSONResponse(entry), nil
}

func (h *Handlers) DeleteModel(ctx context.Context, call *gen.Call, r gen.DeleteModelRequestObject) (gen.DeleteModelResponseObject, error) {
	if err := deletePart(ctx, h, call, catalog.ModelPart(r.ModelID), r.Params.IfMatch); err != nil {
		return nil, err
	}
	return gen.DeleteModel204Response{}, nil
}

// routePosition returns the position of a route in the list: by priority, provider and upstream
// model.
func routePosition(e *catalog.RouteEntry) []byte {
	return fmt.Appendf(nil, "%016x%s\x00%s\x00%s", e.Priority, e.Provider, e.UpstreamModel, e.ID)
}

func (h *Handlers) ListRoutes(ctx context.Context, _ *gen.Call, r gen.ListRoutesRequestObject) (gen.ListRoutesResponseObject, error) {
	found, err := catalog.List(ctx, h.Catalog, catalog.RoutePart(r.ModelID, ""))
	if err != nil {
		return nil, err
	}
	found, cursor, err := convert.Paginate(r.Params.Limit, r.Params.Cursor, found, routePosition)
	if !admin.SeesProviderCost(ctx) {
		for i := range found {
			found[i].HideProviderPrice()
		}
	}
	return gen.ListRoutes200JSONResponse{Data: found, NextCursor: cursor}, err
}

func (h *Handlers) GetRoute(ctx context.Context, call *gen.Call, r gen.GetRouteRequestObject) (gen.GetRouteResponseObject, error) {
	entry, err := getPart(ctx, h, call, catalog.RoutePart(r.ModelID, r.RouteID))
	if err != nil {
		return nil, err
	}
	if !admin.SeesProviderCost(ctx) {
		entry.HideProviderPrice()
	}
	return gen.GetRoute200JSONResponse(entry), nil
}

func (h *Handlers) PutRoute(ctx context.Context, call *gen.Call, r gen.PutRouteRequestObject) (gen.PutRouteResponseObject, error) {
	edited, err := putPart(ctx, h, call, catalog.RoutePart(r.ModelID, r.RouteID), r.Body, r.Params.IfMatch, r.Params.IfNoneMatch)
	switch {
	case err != nil:
		return nil, err
	case edited.Created:
		return gen.PutRoute201JSONResponse(edited.Entry), nil
	default:
		return gen.PutRoute200JSONResponse(edited.Entry), nil
	}
}

func (h *Handlers) UpdateRoute(ctx context.Context, call *gen.Call, r gen.UpdateRouteRequestObject) (gen.UpdateRouteResponseObject, error) {
	entry, err := patchPart(ctx, h, call, catalog.RoutePart(r.ModelID, r.RouteID), r.Body, r.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	return gen.UpdateRoute200JSONResponse(entry), nil
}

func (h *Handlers) DeleteRoute(ctx context.Context, call *gen.Call, r gen.DeleteRouteRequestObject) (gen.DeleteRouteResponseObject, error) {
	if err := deletePart(ctx, h, call, catalog.RoutePart(r.ModelID, r.RouteID), r.Params.IfMatch); err != nil {
		return nil, err
	}
	return gen.DeleteRoute204Response{}, nil
}
