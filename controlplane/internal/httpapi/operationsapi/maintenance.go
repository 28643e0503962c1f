package operationsapi

import (
	"context"
	"time"

	"modelgateway/controlplane/internal/catalog"
	"modelgateway/controlplane/internal/httpapi/convert"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/shared/catalogkv"
)

func (h *Handlers) ListMaintenance(
	ctx context.Context,
	_ *gen.Call,
	_ gen.ListMaintenanceRequestObject,
) (gen.ListMaintenanceResponseObject, error) {
	closed, rev, err := h.Catalog.Maintenance(ctx)
	if err != nil {
		return nil, err
	}
	return gen.ListMaintenance200JSONResponse{CatalogRevision: rev, Data: convert.All(closed, maintenanceView)}, nil
}

func (h *Handlers) MaintainSystem(
	ctx context.Context,
	call *gen.Call,
	r gen.MaintainSystemRequestObject,
) (gen.MaintainSystemResponseObject, error) {
	view, err := h.maintain(ctx, call, catalog.WholeSystem, "", r.Body)
	return gen.MaintainSystem200JSONResponse(view), err
}

func (h *Handlers) OpenSystem(ctx context.Context, call *gen.Call, _ gen.OpenSystemRequestObject) (gen.OpenSystemResponseObject, error) {
	return gen.OpenSystem204Response{}, h.endMaintenance(ctx, call, catalog.WholeSystem, "")
}

func (h *Handlers) MaintainModel(
	ctx context.Context,
	call *gen.Call,
	r gen.MaintainModelRequestObject,
) (gen.MaintainModelResponseObject, error) {
	view, err := h.maintain(ctx, call, catalog.OneModel, r.ModelID, r.Body)
	return gen.MaintainModel200JSONResponse(view), err
}

func (h *Handlers) OpenModel(ctx context.Context, call *gen.Call, r gen.OpenModelRequestObject) (gen.OpenModelResponseObject, error) {
	return gen.OpenModel204Response{}, h.endMaintenance(ctx, call, catalog.OneModel, r.ModelID)
}

func (h *Handlers) MaintainProvider(
	ctx context.Context,
	call *gen.Call,
	r gen.MaintainProviderRequestObject,
) (gen.MaintainProviderResponseObject, error) {
	view, err := h.maintain(ctx, call, catalog.OneProvider, r.ProviderID, r.Body)
	return gen.MaintainProvider200JSONResponse(view), err
}

func (h *Handlers) OpenProvider(
	ctx context.Context,
	call *gen.Call,
	r gen.OpenProviderRequestObject,
) (gen.OpenProviderResponseObject, error) {
	return gen.OpenProvider204Response{}, h.endMaintenance(ctx, call, catalog.OneProvider, r.ProviderID)
}

// maintain starts maintenance as the request body says.
func (h *Handlers) maintain(
	ctx context.Context,
	call *gen.Call,
	scope catalog.Scope,
	id string,
	body *gen.MaintenanceSet,
) (gen.Maintenance, error) {
	m := catalog.MaintenanceEntry{Scope: scope, ID: id, Maintenance: catalogkv.Maintenance{Message: convert.Text(body.Message)}}
	if body.Until != nil {
		m.UntilUnix = body.Until.Unix()
	}
	rev, err := h.Catalog.Maintain(ctx, scope, id, &m.Maintenance)
	call.Changes.AddCatalog(rev)
	view := maintenanceView(&m)
	view.CatalogRevision = &rev
	return view, err
}

// endMaintenance ends maintenance.
func (h *Handlers) endMaintenance(ctx context.Context, call *gen.Call, scope catalog.Scope, id string) error {
	rev, err := h.Catalog.Maintain(ctx, scope, id, nil)
	call.Changes.AddCatalog(rev)
	return err
}

func maintenanceView(m *catalog.MaintenanceEntry) gen.Maintenance {
	view := gen.Maintenance{
		Scope:   gen.MaintenanceScope(m.Scope),
		ID:      convert.Optional(m.ID),
		Message: convert.Optional(m.Message),
		Active:  m.Active(time.Now()),
	}
	if m.UntilUnix != 0 {
		view.Until = new(time.Unix(m.UntilUnix, 0).UTC())
	}
	return view
}
