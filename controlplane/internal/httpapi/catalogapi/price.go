package catalogapi

import (
	"context"
	"fmt"
	"time"

	"modelgateway/controlplane/internal/catalog"
	"modelgateway/controlplane/internal/etag"
	"modelgateway/controlplane/internal/httpapi/convert"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/usage"
	"modelgateway/controlplane/internal/validation"
)

func (h *Handlers) GetSettings(ctx context.Context, call *gen.Call, _ gen.GetSettingsRequestObject) (gen.GetSettingsResponseObject, error) {
	entry, tag, err := h.Catalog.GetSettings(ctx)
	if err != nil {
		return nil, err
	}
	call.ETag = tag
	return gen.GetSettings200JSONResponse(entry), nil
}

func (h *Handlers) PutSettings(ctx context.Context, call *gen.Call, r gen.PutSettingsRequestObject) (gen.PutSettingsResponseObject, error) {
	match, err := etag.Parse(convert.Text(r.Params.IfMatch))
	if err != nil {
		return nil, err
	}
	edited, err := h.Catalog.PutSettings(ctx, *r.Body, match)
	if err != nil {
		return nil, err
	}
	call.ETag = edited.Tag
	call.Changes.AddCatalog(edited.Rev)
	return gen.PutSettings200JSONResponse(edited.Entry), nil
}

func (h *Handlers) ListPrices(ctx context.Context, _ *gen.Call, r gen.ListPricesRequestObject) (gen.ListPricesResponseObject, error) {
	prices, err := h.Catalog.Prices(ctx, r.ModelID)
	if err != nil {
		return nil, err
	}
	prices, cursor, err := convert.Paginate(r.Params.Limit, r.Params.Cursor, prices, pricePosition)
	return gen.ListPrices200JSONResponse{Data: convert.All(prices, priceView), NextCursor: cursor}, err
}

// pricePosition returns the position of a price in the list: first the scheduled ones, latest
// first, then the versions, newest first.
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

func (h *Handlers) CreatePrice(ctx context.Context, call *gen.Call, r gen.CreatePriceRequestObject) (gen.CreatePriceResponseObject, error) {
	match, err := etag.Parse(convert.Text(r.Params.IfMatch))
	if err != nil {
		return nil, err
	}

	var rev int64
	if from := r.Body.EffectiveFrom; from == nil {
		rev, err = h.Catalog.SetPrice(ctx, r.ModelID, &r.Body.Price, match)
	} else {
		rev, err = h.Catalog.SchedulePrice(ctx, catalog.PriceID(call.OperationID), r.ModelID, &r.Body.Price, *from, match)
	}

	if err != nil {
		return nil, err
	}

	call.Changes.AddCatalog(rev)
	prices, err := h.Catalog.Prices(ctx, r.ModelID)
	if err != nil {
		return nil, err
	}

	return gen.CreatePrice201JSONResponse{Data: convert.All(prices, priceView)}, nil
}

func (h *Handlers) CancelPrice(ctx context.Context, call *gen.Call, r gen.CancelPriceRequestObject) (gen.CancelPriceResponseObject, error) {
	id, err := catalog.ParsePriceID(r.PriceID)
	if err != nil {
		return nil, err
	}
	rev, err := h.Catalog.CancelPrice(ctx, r.ModelID, id)
	if err != nil {
		return nil, err
	}
	call.Changes.AddCatalog(rev)
	return gen.CancelPrice204Response{}, nil
}

func priceView(p *catalog.PriceVersion) gen.PriceVersion {
	view := gen.PriceVersion{
		Status:        gen.PriceVersionStatusPast,
		EffectiveFrom: p.EffectiveFrom,
		CreatedAt:     p.CreatedAt,
		Price:         p.Price,
	}

	switch {
	case p.Version == 0:
		view.Status, view.ID = gen.PriceVersionStatusScheduled, convert.Optional(p.ID.String())
	case p.InForce:
		view.Status = gen.PriceVersionStatusInForce
	}

	if p.Version != 0 {
		view.Version = &p.Version
	}

	return view
}

// maxPreviewDays bounds the period of a preview.
const maxPreviewDays = 31

func (h *Handlers) PreviewPrices(
	ctx context.Context,
	_ *gen.Call,
	r gen.PreviewPricesRequestObject,
) (gen.PreviewPricesResponseObject, error) {
	days := 7
	if r.Body.Days != nil {
		days = *r.Body.Days
	}
	if days < 1 || days > maxPreviewDays {
		return nil, validation.New("days", "must be from 1 to %d", maxPreviewDays)
	}

	sheet, err := h.Catalog.Sheet(ctx, r.ModelID, &r.Body.Price)
	if err != nil {
		return nil, err
	}

	currency, err := h.Catalog.Currency(ctx)
	if err != nil {
		return nil, err
	}

	to := time.Now().UTC().Truncate(time.Millisecond) // ids of requests have milliseconds
	q := usage.PreviewQuery{Model: r.ModelID, From: to.Add(-time.Duration(days) * 24 * time.Hour), To: to}
	p, err := h.Usage.Preview(ctx, q, &sheet)
	if err != nil {
		return nil, err
	}

	return gen.PreviewPrices200JSONResponse{
		Model:            q.Model,
		Currency:         currency,
		From:             q.From,
		To:               q.To,
		Requests:         p.Requests,
		Charged:          p.Charged.String(),
		Previewed:        p.Previewed.String(),
		Change:           p.Change().String(),
		ProviderCost:     p.ProviderCost.String(),
		UnknownCalls:     p.UnknownCalls,
		UnknownCharged:   p.UnknownCharged.String(),
		UnknownPreviewed: p.UnknownPreviewed.String(),
		Margin:           p.Margin().String(),
		PreviewedMargin:  p.PreviewedMargin().String(),
		UnpricedRequests: p.Unpriced,
		UnpricedCharged:  p.UnpricedCharged.String(),
		AccountCount:     p.AccountCount,
		Accounts: convert.All(p.Accounts, func(a *usage.AccountPreview) gen.PricePreviewAccount {
			return gen.PricePreviewAccount{
				AccountID:       a.AccountID.String(),
				Requests:        a.Requests,
				Charged:         a.Charged.String(),
				Previewed:       a.Previewed.String(),
				Change:          a.Change().String(),
				ProviderCost:    a.ProviderCost.String(),
				UnknownCalls:    a.UnknownCalls,
				Margin:          a.Margin().String(),
				PreviewedMargin: a.PreviewedMargin().String(),
			}
		}),
	}, nil
}
