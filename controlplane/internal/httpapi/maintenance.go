package httpapi

import (
	"context"
	"time"

	"modelgateway/controlplane/internal/catalog"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/shared/catalogkv"
)

// ListMaintenance implements gen.StrictServerInterface.
func (s *server) ListMaintenance(ctx context.Context, _ gen.ListMaintenanceRequestObject) (gen.ListMaintenanceResponseObject, error) {
	closed, rev, err := s.cfg.Catalog.Maintenance(ctx)
	if err != nil {
		return nil, err
	}
	return gen.ListMaintenance200JSONResponse{CatalogRevision: rev, Data: all(closed, maintenanceView)}, nil
}

// MaintainSystem implements gen.StrictServerInterface.
func (s *server) MaintainSystem(ctx context.Context, r gen.MaintainSystemRequestObject) (gen.MaintainSystemResponseObject, error) {
	view, err := s.maintain(ctx, catalog.WholeSystem, "", r.Body)
	return gen.MaintainSystem200JSONResponse(view), err
}

// OpenSystem implements gen.StrictServerInterface.
func (s *server) OpenSystem(ctx context.Context, _ gen.OpenSystemRequestObject) (gen.OpenSystemResponseObject, error) {
	_, err := s.cfg.Catalog.Maintain(ctx, catalog.WholeSystem, "", nil)
	return gen.OpenSystem204Response{}, err
}

// MaintainModel implements gen.StrictServerInterface.
func (s *server) MaintainModel(ctx context.Context, r gen.MaintainModelRequestObject) (gen.MaintainModelResponseObject, error) {
	view, err := s.maintain(ctx, catalog.OneModel, r.ModelID, r.Body)
	return gen.MaintainModel200JSONResponse(view), err
}

// OpenModel implements gen.StrictServerInterface.
func (s *server) OpenModel(ctx context.Context, r gen.OpenModelRequestObject) (gen.OpenModelResponseObject, error) {
	_, err := s.cfg.Catalog.Maintain(ctx, catalog.OneModel, r.ModelID, nil)
	return gen.OpenModel204Response{}, err
}

// MaintainProvider implements gen.StrictServerInterface.
func (s *server) MaintainProvider(ctx context.Context, r gen.MaintainProviderRequestObject) (gen.MaintainProviderResponseObject, error) {
	view, err := s.maintain(ctx, catalog.OneProvider, r.ProviderID, r.Body)
	return gen.MaintainProvider200JSONResponse(view), err
}

// OpenProvider implements gen.StrictServerInterface.
func (s *server) OpenProvider(ctx context.Context, r gen.OpenProviderRequestObject) (gen.OpenProviderResponseObject, error) {
	_, err := s.cfg.Catalog.Maintain(ctx, catalog.OneProvider, r.ProviderID, nil)
	return gen.OpenProvider204Response{}, err
}

// maintain closes something as a body says.
func (s *server) maintain(ctx context.Context, scope catalog.Scope, id string, body *gen.MaintenanceSet) (gen.Maintenance, error) {
	m := catalog.Maintained{Scope: scope, ID: id, Maintenance: catalogkv.Maintenance{Message: orEmpty(body.Message)}}
	if body.Until != nil {
		m.UntilUnix = body.Until.Unix()
	}
	rev, err := s.cfg.Catalog.Maintain(ctx, scope, id, &m.Maintenance)
	view := maintenanceView(&m)
	view.CatalogRevision = &rev
	return view, err
}

func maintenanceView(m *catalog.Maintained) gen.Maintenance {
	view := gen.Maintenance{Scope: gen.MaintenanceScope(m.Scope), ID: present(m.ID), Message: present(m.Message), Active: m.Active(time.Now())}
	if m.UntilUnix != 0 {
		view.Until = new(time.Unix(m.UntilUnix, 0).UTC())
	}
	return view
}
