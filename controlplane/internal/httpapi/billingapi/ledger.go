package billingapi

import (
	"context"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/httpapi/convert"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/validation"
)

// creditKinds maps the kinds of the API to ledger kinds.
var creditKinds = map[gen.CreditKind]ledger.Kind{
	gen.CreditKindTopUp:      ledger.Credit,
	gen.CreditKindRefund:     ledger.Refund,
	gen.CreditKindCorrection: ledger.Correction,
}

func (h *Handlers) CreateCredit(
	ctx context.Context,
	call *gen.Call,
	r gen.CreateCreditRequestObject,
) (gen.CreateCreditResponseObject, error) {
	id, err := account.ParseID(r.AccountID)
	if err != nil {
		return nil, err
	}

	n, unread := convert.Amount("amount", &r.Body.Amount)
	kind, known := creditKinds[r.Body.Kind]
	if !known {
		unread = validation.Merge(unread, validation.New("kind", "must be top_up, refund or correction"))
	}

	t := ledger.Transaction{
		ID:        ledger.ID(call.OperationID),
		AccountID: id,
		Kind:      kind,
		Amount:    convert.Value(n),
		Reference: r.Body.Reference,
		Reason:    convert.Text(r.Body.Reason),
		RequestID: convert.Text(r.Body.RequestID),
		Actor:     call.Actor,

		MayOverdraw: convert.Value(r.Body.AllowNegativeBalance),
	}
	if err := validation.Merge(unread, t.Validate()); err != nil {
		return nil, err
	}

	booked, posted, err := h.Ledger.Post(ctx, t)
	if err != nil {
		return nil, err
	}

	call.Changes.AddKey(booked.Change)
	if !posted {
		return gen.CreateCredit200JSONResponse(transactionView(&booked)), nil
	}

	return gen.CreateCredit201JSONResponse(transactionView(&booked)), nil
}

func (h *Handlers) ListLedger(ctx context.Context, _ *gen.Call, r gen.ListLedgerRequestObject) (gen.ListLedgerResponseObject, error) {
	id, err := account.ParseID(r.AccountID)
	if err != nil {
		return nil, err
	}

	p, err := convert.ReadPage(r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}

	before, err := p.UUID()
	if err != nil {
		return nil, err
	}
	if _, err := h.Accounts.Get(ctx, id); err != nil {
		return nil, err
	}

	kind, err := readKind(r.Params.Kind)
	if err != nil {
		return nil, err
	}

	found, err := h.Ledger.List(ctx, ledger.Query{
		AccountID: id,
		Kind:      kind,
		Before:    ledger.ID(before),
		Limit:     p.Limit + 1,
	})
	if err != nil {
		return nil, err
	}

	found, cursor := convert.NextPage(p, found, func(t *ledger.Transaction) []byte { return t.ID[:] })
	return gen.ListLedger200JSONResponse{Data: convert.All(found, transactionView), NextCursor: cursor}, nil
}

// readKind returns the ledger kind of the API's name; empty for none.
func readKind(name *gen.TransactionKind) (ledger.Kind, error) {
	if name == nil {
		return "", nil
	}
	for _, kind := range []ledger.Kind{ledger.Credit, ledger.Refund, ledger.Correction, ledger.Usage} {
		if kindView(kind) == *name {
			return kind, nil
		}
	}
	return "", validation.New("kind", "must be top_up, refund, correction or usage")
}

// kindView returns the API's name of a ledger kind.
func kindView(kind ledger.Kind) gen.TransactionKind {
	if kind == ledger.Credit {
		return gen.TransactionKindTopUp
	}
	return gen.TransactionKind(kind)
}

func transactionView(t *ledger.Transaction) gen.Transaction {
	return gen.Transaction{
		ID:        t.ID.String(),
		AccountID: t.AccountID.String(),
		Kind:      kindView(t.Kind),
		Amount:    t.Amount.String(),
		Reference: t.Reference,
		Reason:    convert.Optional(t.Reason),
		Actor:     convert.Optional(t.Actor),
		RequestID: convert.Optional(t.RequestID),
		CreatedAt: t.CreatedAt,
	}
}

func (h *Handlers) CheckLedger(ctx context.Context, _ *gen.Call, r gen.CheckLedgerRequestObject) (gen.CheckLedgerResponseObject, error) {
	var report ledger.Report
	var err error
	if convert.Value(r.Params.Changed) {
		report, err = h.Ledger.CheckChanged(ctx)
	} else {
		report, err = h.Ledger.Check(ctx, nil)
	}

	if err != nil {
		return nil, err
	}

	return gen.CheckLedger200JSONResponse{
		OK:     report.OK(),
		At:     report.At,
		TookMS: report.Took.Milliseconds(),
		Checks: convert.All(report.Checks, checkView),
	}, nil
}

func (h *Handlers) CheckReceipts(
	ctx context.Context,
	_ *gen.Call,
	_ gen.CheckReceiptsRequestObject,
) (gen.CheckReceiptsResponseObject, error) {
	check, err := h.Usage.CheckReceipts(ctx, nil)
	if err != nil {
		return nil, err
	}
	return gen.CheckReceipts200JSONResponse(checkView(&check)), nil
}

func checkView(c *ledger.Check) gen.InvariantCheck {
	view := gen.InvariantCheck{
		Name:      c.Name,
		OK:        c.Differing == 0,
		Compared:  c.Compared,
		Differing: c.Differing,
	}
	if c.First != nil {
		view.First = &gen.Difference{Row: c.First.Row, Want: c.First.Want, Got: c.First.Got}
	}
	return view
}
