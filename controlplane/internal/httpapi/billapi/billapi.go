// Package billapi holds the admin API's handlers of the bills of providers.
package billapi

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"math"
	"strconv"
	"time"

	"modelgateway/controlplane/internal/httpapi/convert"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/httpapi/problem"
	"modelgateway/controlplane/internal/providerbill"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
)

// Handlers implements the operations about bills of providers.
type Handlers struct{ Bills *providerbill.Service }

func (h *Handlers) ImportBill(ctx context.Context, call *gen.Call, r gen.ImportBillRequestObject) (gen.ImportBillResponseObject, error) {
	if r.Body == nil {
		return nil, problem.Explain(problem.ErrMediaType, "the body must be application/octet-stream")
	}
	options := &providerbill.Options{
		Name:       convert.Text(r.Params.Name),
		Provider:   r.Params.Provider,
		Credential: convert.Text(r.Params.Credential),
		TimeZone:   "UTC",
	}
	if r.Params.Format != nil {
		options.Format = providerbill.Format(*r.Params.Format)
	}
	if r.Params.TimeZone != nil {
		options.TimeZone = *r.Params.TimeZone
	}
	bill, created, err := h.Bills.Import(ctx, call.OperationID, r.Body, options, call.Actor)
	if err != nil {
		return nil, err
	}
	if !created {
		return gen.ImportBill200JSONResponse(billView(bill)), nil
	}
	return gen.ImportBill201JSONResponse(billView(bill)), nil
}

func (h *Handlers) ListBills(ctx context.Context, _ *gen.Call, r gen.ListBillsRequestObject) (gen.ListBillsResponseObject, error) {
	p, before, err := convert.ReadPageByID(r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	bills, err := h.Bills.List(ctx, before, p.Limit+1)
	if err != nil {
		return nil, err
	}
	bills, cursor := convert.NextPage(p, bills, func(b *providerbill.Bill) []byte { return b.ID[:] })
	return gen.ListBills200JSONResponse{Data: convert.All(bills, billView), NextCursor: cursor}, nil
}

// billID parses the id of a bill.
func billID(text string) (ident.UUID, error) {
	id, err := ident.Bill.Parse(text)
	if err != nil {
		return id, providerbill.ErrNotFound
	}
	return id, nil
}

func (h *Handlers) GetBill(ctx context.Context, _ *gen.Call, r gen.GetBillRequestObject) (gen.GetBillResponseObject, error) {
	id, err := billID(r.BillID)
	if err != nil {
		return nil, err
	}
	bill, err := h.Bills.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	return gen.GetBill200JSONResponse(billView(bill)), nil
}

func (h *Handlers) DeleteBill(ctx context.Context, _ *gen.Call, r gen.DeleteBillRequestObject) (gen.DeleteBillResponseObject, error) {
	id, err := billID(r.BillID)
	if err != nil {
		return nil, err
	}
	if err := h.Bills.Delete(ctx, id); err != nil {
		return nil, err
	}
	return gen.DeleteBill204Response{}, nil
}

func (h *Handlers) AcceptBill(ctx context.Context, _ *gen.Call, r gen.AcceptBillRequestObject) (gen.AcceptBillResponseObject, error) {
	id, err := billID(r.BillID)
	if err != nil {
		return nil, err
	}
	bill, err := h.Bills.Accept(ctx, id, r.Body.Reason)
	if err != nil {
		return nil, err
	}
	return gen.AcceptBill200JSONResponse(billView(bill)), nil
}

func (h *Handlers) ListBillDifferences(
	ctx context.Context,
	_ *gen.Call,
	r gen.ListBillDifferencesRequestObject,
) (gen.ListBillDifferencesResponseObject, error) {
	p, err := convert.ReadPage(r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	query := providerbill.DifferenceQuery{
		Open:       convert.Value(r.Params.Open),
		Kind:       providerbill.Kind(convert.Value(r.Params.Kind)),
		Model:      convert.Text(r.Params.Model),
		Credential: convert.Text(r.Params.Credential),
		Limit:      p.Limit + 1,
	}
	var invalid validation.Errors
	query.Day = convert.ReadDay(&invalid, "day", r.Params.Day)
	if query.Kind != "" && !query.Kind.Known() {
		invalid.Add("kind", "is no kind of difference")
	}
	if err := invalid.Err(); err != nil {
		return nil, err
	}
	if p.Cursor != nil {
		if len(p.Cursor) != 16 {
			return nil, convert.InvalidCursor()
		}
		query.AfterOpen = money.Nano(binary.BigEndian.Uint64(p.Cursor))
		query.AfterNumber = int64(binary.BigEndian.Uint64(p.Cursor[8:]))
	}

	bill, found, err := h.differences(ctx, r.BillID, &query)
	if err != nil {
		return nil, err
	}
	found, cursor := convert.NextPage(p, found, func(d *providerbill.Difference) []byte {
		position := binary.BigEndian.AppendUint64(nil, uint64(d.OpenAmount()))
		return binary.BigEndian.AppendUint64(position, uint64(d.Number))
	})
	return gen.ListBillDifferences200JSONResponse{Data: convert.All(found, differenceViews(bill)), NextCursor: cursor}, nil
}

func (h *Handlers) differences(
	ctx context.Context, text string, query *providerbill.DifferenceQuery,
) (*providerbill.Bill, []providerbill.Difference, error) {
	id, err := billID(text)
	if err != nil {
		return nil, nil, err
	}
	bill, err := h.Bills.Get(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	found, err := h.Bills.Differences(ctx, id, query)
	return bill, found, err
}

func (h *Handlers) GetBillDifference(
	ctx context.Context,
	_ *gen.Call,
	r gen.GetBillDifferenceRequestObject,
) (gen.GetBillDifferenceResponseObject, error) {
	id, err := billID(r.BillID)
	if err != nil {
		return nil, err
	}
	bill, err := h.Bills.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	found, err := h.Bills.Requests(ctx, id, r.Number)
	if err != nil {
		return nil, err
	}
	return gen.GetBillDifference200JSONResponse{
		Difference: differenceViews(bill)(&found.Difference),
		Requests:   convert.All(found.Requests, requestViews(bill.Unit)),
		More:       found.More,
	}, nil
}

// amounts returns how amounts of a unit are written.
func amounts(unit providerbill.Unit) func(money.Nano) string {
	if unit == providerbill.Tokens {
		return func(n money.Nano) string { return strconv.FormatInt(int64(n), 10) }
	}
	return money.Nano.String
}

func billView(b *providerbill.Bill) gen.Bill {
	amount := amounts(b.Unit)
	view := gen.Bill{
		ID:               ident.Bill.Format(b.ID),
		Name:             convert.Optional(b.Name),
		ProviderID:       b.Provider,
		Format:           gen.BillFormat(b.Content.Format),
		Unit:             gen.BillUnit(b.Unit),
		Currency:         convert.Optional(b.Currency),
		Credential:       convert.Optional(b.Credential),
		TimeZone:         b.TimeZone,
		Sha256:           hex.EncodeToString(b.Hash[:]),
		FirstDay:         convert.Day(b.FirstDay),
		LastDay:          convert.Day(b.LastDay),
		EndsAt:           b.EndsAt,
		Lines:            b.Lines,
		LinesWithRequest: b.WithRequest,
		Billed:           b.Content.Billed.Round().String(),
		Other:            b.Other.Round().String(),
		State:            gen.BillState(b.State(time.Now())),
		ImportedAt:       b.ImportedAt,
		ImportedBy:       b.ImportedBy,
		AcceptedAt:       b.AcceptedAt,
		AcceptedBy:       convert.Optional(b.AcceptedBy),
		AcceptedAs:       convert.Optional(b.AcceptedAs),
	}
	if b.ComparedAt != nil {
		c := &b.Comparison
		view.Comparison = &gen.BillComparison{
			At:           *b.ComparedAt,
			Billed:       amount(c.Billed),
			Recorded:     amount(c.Recorded),
			Requests:     c.Calls,
			Open:         amount(b.OpenAmount),
			OpenShare:    share(b, b.OpenAmount),
			ByModel:      c.ByModel,
			ByCredential: c.ByCredential,
			Parts:        convert.All(c.Parts, partViews(b.Unit)),
		}
	}
	return view
}

// share returns which part of a bill is open.
func share(b *providerbill.Bill, open money.Nano) float32 {
	return float32(float64(open) / math.Max(1, math.Max(math.Abs(float64(b.Comparison.Billed)), math.Abs(float64(b.Comparison.Recorded)))))
}

func partViews(unit providerbill.Unit) func(*providerbill.Part) gen.BillPart {
	amount := amounts(unit)
	return func(p *providerbill.Part) gen.BillPart {
		return gen.BillPart{
			Kind:  gen.BillDifferenceKind(p.Kind),
			Open:  p.Kind.Open(),
			Over:  amount(p.Over),
			Under: amount(p.Under),
			Count: p.Count,
		}
	}
}

func differenceViews(b *providerbill.Bill) func(*providerbill.Difference) gen.BillDifference {
	amount := amounts(b.Unit)
	return func(d *providerbill.Difference) gen.BillDifference {
		view := gen.BillDifference{
			Number:     d.Number,
			Day:        convert.Day(d.Day),
			Model:      d.Model,
			Credential: d.Credential,
			State:      gen.BillDifferenceStateExplained,
			Billed:     amount(d.Billed),
			Recorded:   amount(d.Recorded),
			Open:       amount(d.OpenAmount()),
			OpenShare:  share(b, d.OpenAmount()),
			Lines:      d.Lines,
			Requests:   d.Calls,
			Parts:      convert.All(d.Parts, partViews(b.Unit)),
		}
		if d.OpenAmount() > 0 {
			view.State = gen.BillDifferenceStateOpen
		}
		return view
	}
}

func requestViews(unit providerbill.Unit) func(*providerbill.Request) gen.BillRequest {
	amount := amounts(unit)
	return func(r *providerbill.Request) gen.BillRequest {
		view := gen.BillRequest{
			RequestID:         convert.Optional(r.RequestID),
			ProviderRequestID: convert.Optional(r.ProviderRequestID),
			EndedAt:           convert.OptionalTime(r.At),
			Model:             r.Model,
			Credential:        r.Credential,
			Billed:            amount(r.Billed),
			Recorded:          amount(r.Recorded),
			Lines:             r.Lines,
			Requests:          r.Calls,
		}
		if r.Kind != "" {
			view.Kind = new(gen.BillDifferenceKind(r.Kind))
		}
		return view
	}
}
