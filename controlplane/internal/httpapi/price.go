package httpapi

import (
	"context"
	"fmt"

	"modelgateway/controlplane/internal/catalog"
	"modelgateway/controlplane/internal/etag"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/idempotency"
)

// GetSettings implements gen.StrictServerInterface.
func (s *server) GetSettings(ctx context.Context, _ gen.GetSettingsRequestObject) (gen.GetSettingsResponseObject, error) {
	entry, tag, err := s.cfg.Catalog.GetSettings(ctx)
	if err != nil {
		return nil, err
	}
	setETag(ctx, tag)
	return gen.GetSettings200JSONResponse(entry), nil
}

// PutSettings implements gen.StrictServerInterface.
func (s *server) PutSettings(ctx context.Context, r gen.PutSettingsRequestObject) (gen.PutSettingsResponseObject, error) {
	match, err := etag.Parse(orEmpty(r.Params.IfMatch))
	if err != nil {
		return nil, err
	}
	entry, tag, err := s.cfg.Catalog.PutSettings(ctx, *r.Body, match)
	if err != nil {
		return nil, err
	}
	setETag(ctx, tag)
	return gen.PutSettings200JSONResponse(entry), nil
}

// ListPrices implements gen.StrictServerInterface.
func (s *server) ListPrices(ctx context.Context, r gen.ListPricesRequestObject) (gen.ListPricesResponseObject, error) {
	prices, err := s.cfg.Catalog.Prices(ctx, r.ModelID)
	if err != nil {
		return nil, err
	}
	prices, cursor, err := cut(r.Params.Limit, r.Params.Cursor, prices, pricePosition)
	return gen.ListPrices200JSONResponse{Data: all(prices, priceView), NextCursor: cursor}, err
}

// pricePosition rises as prices are listed: the scheduled ones, the latest
// first, then the versions, the newest first.
func pricePosition(v *catalog.PriceVersion) []byte {
	if v.Version != 0 {
		return fmt.Appendf(nil, "1%016x", ^uint64(v.Version))
	}
	last := v.ID
	for i := range last {
		last[i] = ^last[i]
	}
	return fmt.Appendf(nil, "0%016x%x", ^uint64(v.EffectiveFrom.UnixMicro()), last[:])
}

// CreatePrice implements gen.StrictServerInterface.
func (s *server) CreatePrice(ctx context.Context, r gen.CreatePriceRequestObject) (gen.CreatePriceResponseObject, error) {
	var prices []catalog.PriceVersion
	var err error
	if from := r.Body.EffectiveFrom; from == nil {
		prices, err = s.cfg.Catalog.SetPrice(ctx, r.ModelID, &r.Body.Price)
	} else {
		prices, err = s.cfg.Catalog.SchedulePrice(ctx, catalog.PriceID(idempotency.Operation(ctx)), r.ModelID, &r.Body.Price, *from)
	}
	if err != nil {
		return nil, err
	}
	return gen.CreatePrice201JSONResponse{Data: all(prices, priceView)}, nil
}

// CancelPrice implements gen.StrictServerInterface.
func (s *server) CancelPrice(ctx context.Context, r gen.CancelPriceRequestObject) (gen.CancelPriceResponseObject, error) {
	id, err := catalog.ParsePriceID(r.PriceID)
	if err != nil {
		return nil, err
	}
	if err := s.cfg.Catalog.CancelPrice(ctx, r.ModelID, id); err != nil {
		return nil, err
	}
	return gen.CancelPrice204Response{}, nil
}

func priceView(p *catalog.PriceVersion) gen.PriceVersion {
	view := gen.PriceVersion{Status: gen.Past, EffectiveFrom: p.EffectiveFrom, CreatedAt: p.CreatedAt, Price: p.Price}
	switch {
	case p.Version == 0:
		view.Status, view.ID = gen.Scheduled, present(p.ID.String())
	case p.InForce:
		view.Status = gen.InForce
	}
	if p.Version != 0 {
		view.Version = &p.Version
	}
	return view
}
