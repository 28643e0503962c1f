package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/usage"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
	"modelgateway/shared/price"
)

// ListUsage implements gen.StrictServerInterface.
func (s *server) ListUsage(ctx context.Context, r gen.ListUsageRequestObject) (gen.ListUsageResponseObject, error) {
	p, err := readPage(r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	q, err := usageQuery(&r.Params)
	if err != nil {
		return nil, err
	}
	before, err := p.uuid()
	if err != nil {
		return nil, err
	}
	q.Before, q.Limit = usage.RequestID(before), p.limit+1
	found, err := s.cfg.Usage.List(ctx, q)
	if err != nil {
		return nil, err
	}
	found, cursor := next(p, found, func(r *usage.Record) []byte { return r.RequestID[:] })
	views := make([]gen.UsageRecord, len(found))
	for i := range found {
		if views[i], err = usageView(&found[i]); err != nil {
			return nil, err
		}
	}
	return gen.ListUsage200JSONResponse{Data: views, NextCursor: cursor}, nil
}

// usageQuery reads the filters of a list.
func usageQuery(params *gen.ListUsageParams) (usage.Query, error) {
	var invalid validation.Errors
	q := usage.Query{Model: orEmpty(params.Model), From: valueOf(params.From), To: valueOf(params.To)}
	q.AccountID, q.KeyID = readOwner(&invalid, params.AccountID, params.KeyID)
	checkSpan(&invalid, q.From, q.To)
	return q, invalid.Err()
}

// checkSpan refuses a time that ends before it begins; zero leaves an end open.
func checkSpan(invalid *validation.Errors, from, to time.Time) {
	if !from.IsZero() && !to.IsZero() && to.Before(from) {
		invalid.Add("to", "must not be before from")
	}
}

// GetUsage implements gen.StrictServerInterface.
func (s *server) GetUsage(ctx context.Context, r gen.GetUsageRequestObject) (gen.GetUsageResponseObject, error) {
	id, err := usage.ParseRequestID(r.RequestID)
	if err != nil {
		return nil, err
	}
	record, receipt, err := s.cfg.Usage.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	currency, err := s.cfg.Catalog.Currency(ctx)
	if err != nil {
		return nil, err
	}
	view, err := usageView(&record)
	if err != nil {
		return nil, err
	}
	corrections, err := s.cfg.Ledger.Corrections(ctx, ident.UUID(id))
	if err != nil {
		return nil, err
	}
	return gen.GetUsage200JSONResponse{UsageRecord: view, Corrections: all(corrections, transactionView), Receipt: gen.Receipt{
		PriceVersion: receipt.PriceVersion, Currency: currency, ListCost: receipt.ListCost.String(),
		PriceMultiplier: receipt.PriceMultiplier.String(), Cost: receipt.Cost.String(), Reserve: receipt.Reserve.String(),
		Rule: receipt.Rule,
		Lines: all(receipt.Lines, func(i *price.Item) gen.ReceiptLine {
			return gen.ReceiptLine{
				Line: string(i.Line), Quantity: i.Quantity, UnitPrice: money.Nano(i.Rate).String(), Per: i.Per, Amount: i.Amount(),
			}
		}),
	}}, nil
}

func usageView(r *usage.Record) (gen.UsageRecord, error) {
	view := gen.UsageRecord{
		RequestID: r.RequestID.String(), AccountID: r.AccountID.String(), KeyID: r.KeyID.String(), Model: r.Model, Format: r.Format,
		Provider: present(r.Provider), Route: present(r.Route), ProviderRequestID: present(r.ProviderRequestID),
		Status: gen.UsageRecordStatus(r.Status), Stream: r.Stream, StartedAt: r.StartedAt, FinishedAt: r.FinishedAt,
		FirstByteMS: &r.FirstByteMS, Estimated: r.Estimated, Rule: r.Rule, Cost: r.Cost.String(), Reserve: r.Reserve.String(),
		PriceVersion: r.PriceVersion, PriceMultiplier: r.PriceMultiplier.String(), VideoJob: present(r.VideoJob), SettledAt: r.SettledAt,
	}
	if r.HTTPStatus != 0 {
		view.HTTPStatus = &r.HTTPStatus
	}
	text, err := json.Marshal(r.Usage)
	if err == nil {
		err = json.Unmarshal(text, &view.Usage)
	}
	if err != nil {
		return gen.UsageRecord{}, fmt.Errorf("httpapi: encode usage of %s: %w", r.RequestID, err)
	}
	return view, nil
}
