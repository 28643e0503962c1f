package billingapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"modelgateway/controlplane/internal/admin"
	"modelgateway/controlplane/internal/httpapi/convert"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/httpapi/problem"
	"modelgateway/controlplane/internal/usage"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
	"modelgateway/shared/price"
)

func (h *Handlers) ListUsage(ctx context.Context, _ *gen.Call, r gen.ListUsageRequestObject) (gen.ListUsageResponseObject, error) {
	p, err := convert.ReadPage(r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}

	q, err := usageQuery(&r.Params)
	if err != nil {
		return nil, err
	}

	before, err := p.UUID()
	if err != nil {
		return nil, err
	}

	q.Before, q.Limit = usage.RequestID(before), p.Limit+1
	page, err := h.Usage.List(ctx, q)
	if err != nil {
		return nil, err
	}

	found, cursor := convert.NextPage(p, page.Records, func(r *usage.Record) []byte { return r.RequestID[:] })
	if cursor == nil && page.Resume != (usage.RequestID{}) {
		cursor = convert.CursorOf(page.Resume[:])
	}

	views := make([]gen.UsageRecord, len(found))
	for i := range found {
		if views[i], err = usageView(ctx, &found[i]); err != nil {
			return nil, err
		}
	}

	return gen.ListUsage200JSONResponse{Data: views, NextCursor: cursor}, nil
}

// usageQuery parses the filters of the list.
func usageQuery(params *gen.ListUsageParams) (usage.Query, error) {
	var invalid validation.Errors
	q := usage.Query{Model: convert.Text(params.Model), From: convert.Value(params.From), To: convert.Value(params.To)}
	q.AccountID, q.KeyID = convert.ReadOwner(&invalid, params.AccountID, params.KeyID)
	q.ProjectID = convert.ReadProjectOrNone(&invalid, params.ProjectID, q.AccountID)
	convert.CheckTimeRange(&invalid, q.From, q.To)
	q.Status, q.Provider, q.Route = event.Status(convert.Value(params.Status)), convert.Text(params.Provider), convert.Text(params.Route)
	q.Credential = convert.Text(params.Credential)
	q.Format, q.Stream, q.Estimated = convert.Text(params.Format), params.Stream, params.Estimated
	if q.Status != "" && !q.Status.Valid() {
		invalid.Add("status", "is not a status of a request")
	}

	if prefix := params.RequestIDPrefix; prefix != nil {
		var err error
		if q.Lowest, q.Highest, err = usage.PrefixRange(*prefix); err != nil {
			invalid.Add("request_id_prefix", "is not the beginning of the id of a request")
		}
	}

	least, err := convert.Amount("min_cost", params.MinCost)
	q.MinCost = convert.Value(least)
	return q, validation.Merge(invalid.Err(), err)
}

func (h *Handlers) GetUsage(ctx context.Context, _ *gen.Call, r gen.GetUsageRequestObject) (gen.GetUsageResponseObject, error) {
	id, err := usage.ParseRequestID(r.RequestID)
	if err != nil {
		return nil, err
	}

	record, receipt, err := h.Usage.Get(ctx, id)
	if errors.Is(err, usage.ErrNotFound) {
		return nil, problem.Explain(
			err,
			"of a refused request, `gwctl usage explain` and GET /admin/v1/refusals?request_id=… say why it was refused",
		)
	}
	if err != nil {
		return nil, err
	}

	currency, err := h.Catalog.Currency(ctx)
	if err != nil {
		return nil, err
	}

	view, err := usageView(ctx, &record)
	if err != nil {
		return nil, err
	}

	corrections, err := h.Ledger.Corrections(ctx, ident.UUID(id))
	if err != nil {
		return nil, err
	}

	attempts := make([]gen.RouteAttempt, len(record.Attempts))
	for i := range attempts {
		if attempts[i], err = attemptView(ctx, &record.Attempts[i]); err != nil {
			return nil, err
		}
	}

	return gen.GetUsage200JSONResponse{
		UsageRecord: view,
		Attempts:    attempts,
		Corrections: convert.All(corrections, transactionView),
		Receipt: gen.Receipt{
			PriceVersion:    receipt.PriceVersion,
			Currency:        currency,
			ListCost:        receipt.ListCost.String(),
			PriceMultiplier: receipt.PriceMultiplier.String(),
			Cost:            receipt.Cost.String(),
			Reservation:     receipt.Reservation.String(),
			Rule:            receipt.Rule,
			Lines: convert.All(receipt.Lines, func(i *price.Item) gen.ReceiptLine {
				return gen.ReceiptLine{
					Line:      string(i.Line),
					Quantity:  i.Quantity,
					UnitPrice: money.Nano(i.Rate).String(),
					Per:       i.Per,
					Amount:    i.Amount(),
				}
			}),
		},
	}, nil
}

func attemptView(ctx context.Context, a *usage.Attempt) (gen.RouteAttempt, error) {
	view := gen.RouteAttempt{
		Route:             a.Route,
		Provider:          convert.Optional(a.Provider),
		CredentialID:      convert.Optional(a.Credential),
		Credential:        convert.Optional(a.CredentialName),
		Class:             convert.Optional(a.Class),
		Skipped:           convert.Optional(a.Skipped),
		Result:            gen.RouteAttemptResultServed,
		ProviderRequestID: convert.Optional(a.ProviderRequestID),
	}

	switch {
	case a.Skipped != "":
		view.Result = gen.RouteAttemptResultSkipped
	case a.Class != "":
		view.Result = gen.RouteAttemptResultFailed
	}

	if a.Skipped == "" {
		view.MS = &a.MS
	}
	if !a.Spent() {
		return view, nil
	}

	view.Estimated = &a.Estimated
	if a.ProviderCost != nil && admin.SeesProviderCost(ctx) {
		cost := a.ProviderCost.String()
		view.ProviderCost, view.ProviderPriceVersion = &cost, &a.ProviderPriceVersion
	}

	return view, countsView(&a.Usage, &view.Usage)
}

// countsView encodes a usage as an object of the API.
func countsView(u *price.Usage, into *map[string]any) error {
	text, err := json.Marshal(u)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("httpapi: encode usage: %w", err)
	}
	return nil
}

// usageView returns a record as the caller may see it.
func usageView(ctx context.Context, r *usage.Record) (gen.UsageRecord, error) {
	view := gen.UsageRecord{
		RequestID:         r.RequestID.String(),
		AccountID:         r.AccountID.String(),
		KeyID:             r.KeyID.String(),
		ProjectID:         convert.Optional(r.ProjectName()),
		Model:             r.Model,
		Format:            r.Format,
		Provider:          convert.Optional(r.Provider),
		Route:             convert.Optional(r.Route),
		Credential:        convert.Optional(r.Credential),
		ProviderRequestID: convert.Optional(r.ProviderRequestID),
		Status:            gen.UsageStatus(r.Status),
		Stream:            r.Stream,
		StartedAt:         r.StartedAt,
		FinishedAt:        r.FinishedAt,
		FirstByteMS:       &r.FirstByteMS,
		Estimated:         r.Estimated,
		Doubt:             convert.Optional(r.Doubt),
		Rule:              r.Rule,
		Cost:              r.Cost.String(),
		Reservation:       r.Reservation.String(),
		PriceVersion:      r.PriceVersion,
		PriceMultiplier:   r.PriceMultiplier.String(),
		VideoJob:          convert.Optional(r.VideoJob),
		SettledAt:         r.SettledAt,
	}
	if admin.SeesProviderCost(ctx) {
		if r.ProviderCost != nil {
			cost := r.ProviderCost.String()
			view.ProviderCost = &cost
		}
		if r.ProviderPriceVersion != 0 {
			view.ProviderPriceVersion = &r.ProviderPriceVersion
		}
		if cost, known := r.FailedCallsCost(); known {
			view.FailedCallsCost = new(cost.String())
		}
	}
	if failed := r.FailedCalls(); failed > 0 {
		view.FailedCalls = &failed
	}
	if r.HTTPStatus != 0 {
		view.HTTPStatus = &r.HTTPStatus
	}

	return view, countsView(&r.Usage, &view.Usage)
}
