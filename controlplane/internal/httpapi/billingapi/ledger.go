package billingapi

import (
	"context"
	"slices"
	"time"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/httpapi/convert"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/validation"
)

// creditKinds are the kinds of transactions that can be booked by hand.
var creditKinds = []ledger.Kind{ledger.Payment, ledger.Promotion, ledger.Refund, ledger.Correction}

func (h *Handlers) CreateCredit(
	ctx context.Context,
	call *gen.Call,
	r gen.CreateCreditRequestObject,
) (gen.CreateCreditResponseObject, error) {
	id, err := account.ParseID(r.AccountID)
	if err != nil {
		return nil, err
	}

	t, unread := readCredit(r.Body)
	t.ID, t.AccountID, t.Actor = ledger.ID(call.OperationID), id, call.Actor
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

// readCredit reads a transaction. The error has what could not be read.
func readCredit(c *gen.CreditCreate) (ledger.Transaction, error) {
	n, unread := convert.Amount("amount", &c.Amount)
	kind := ledger.Kind(c.Kind)
	if !slices.Contains(creditKinds, kind) {
		unread = validation.Merge(unread, validation.New("kind", "must be payment, promotion, refund or correction"))
	}

	t := ledger.Transaction{
		Kind:      kind,
		Amount:    convert.Value(n),
		Reference: c.Reference,
		Reason:    convert.Text(c.Reason),
		RequestID: convert.Text(c.RequestID),
		ExpiresAt: convert.Value(c.ExpiresAt).UTC().Truncate(time.Second),
		Priority:  ledger.DefaultPriority,

		MayOverdraw: convert.Value(c.AllowNegativeBalance),
	}
	if c.Priority != nil {
		if t.Priority = *c.Priority; t.Priority == 0 {
			t.Priority = -1 // zero would mean the default
		}
	}
	if text := convert.Text(c.CreditID); text != "" {
		var err error
		if t.CreditID, err = ledger.ParseID(text); err != nil {
			unread = validation.Merge(unread, validation.New("credit_id", "is not the id of a credit"))
		}
	}
	return t, unread
}

func (h *Handlers) ListCredits(ctx context.Context, _ *gen.Call, r gen.ListCreditsRequestObject) (gen.ListCreditsResponseObject, error) {
	id, err := account.ParseID(r.AccountID)
	if err != nil {
		return nil, err
	}

	p, before, err := convert.ReadPageByID(r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}

	q, err := creditQuery(&r.Params)
	if err != nil {
		return nil, err
	}
	q.AccountID, q.Before, q.Limit = id, ledger.ID(before), p.Limit+1

	currency, err := h.Catalog.Currency(ctx)
	if err != nil {
		return nil, err
	}

	found, uncovered, err := h.Ledger.Credits(ctx, q)
	if err != nil {
		return nil, err
	}

	found, cursor := convert.NextPage(p, found, func(c *ledger.Credit) []byte { return c.ID[:] })
	return gen.ListCredits200JSONResponse{
		Currency:   currency,
		Uncovered:  uncovered.String(),
		Data:       convert.All(found, creditView),
		NextCursor: cursor,
	}, nil
}

// creditQuery parses the filters of the list.
func creditQuery(params *gen.ListCreditsParams) (ledger.CreditQuery, error) {
	var invalid validation.Errors
	q := ledger.CreditQuery{
		Query: ledger.Query{
			Kind: ledger.Kind(convert.Value(params.Kind)),
			From: params.From,
			To:   params.To,
		},
		State:         ledger.CreditState(convert.Value(params.State)),
		Reference:     convert.Text(params.Reference),
		ExpiresBefore: params.ExpiresBefore,
	}
	if q.Kind != "" && !slices.Contains(creditKinds, q.Kind) {
		invalid.Add("kind", "must be payment, promotion, refund or correction")
	}
	if q.State != "" && !slices.Contains(ledger.CreditStates, q.State) {
		invalid.Add("state", "must be active, expired or used")
	}
	convert.CheckTimeRange(&invalid, convert.Value(params.From), convert.Value(params.To))
	return q, invalid.Err()
}

func creditView(c *ledger.Credit) gen.Credit {
	return gen.Credit{
		ID:        c.ID.String(),
		AccountID: c.AccountID.String(),
		Kind:      gen.CreditKind(c.Kind),
		State:     gen.CreditState(c.State()),
		Reference: c.Reference,
		Amount:    c.Amount.String(),
		Used:      c.Used.String(),
		Refunded:  c.Refunded.String(),
		Expired:   c.Expired.String(),
		Held:      c.Held.String(),
		Left:      c.Left().String(),
		Priority:  c.Priority,
		ExpiresAt: optionalTime(c.ExpiresAt),
		CreatedAt: c.CreatedAt,
	}
}

// optionalTime returns nil for the zero time.
func optionalTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// creditText is the id of a credit, or "" for none.
func creditText(id ledger.ID) string {
	if id == (ledger.ID{}) {
		return ""
	}
	return id.String()
}

func (h *Handlers) ListLedger(ctx context.Context, _ *gen.Call, r gen.ListLedgerRequestObject) (gen.ListLedgerResponseObject, error) {
	id, err := account.ParseID(r.AccountID)
	if err != nil {
		return nil, err
	}

	p, before, err := convert.ReadPageByID(r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	if _, err := h.Accounts.Get(ctx, id); err != nil {
		return nil, err
	}

	kind, err := readKind(r.Params.Kind)
	var invalid validation.Errors
	convert.CheckTimeRange(&invalid, convert.Value(r.Params.From), convert.Value(r.Params.To))
	if err := validation.Merge(err, invalid.Err()); err != nil {
		return nil, err
	}

	found, err := h.Ledger.List(ctx, ledger.Query{
		AccountID: id,
		Kind:      kind,
		From:      r.Params.From,
		To:        r.Params.To,
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
	if kind := ledger.Kind(*name); slices.Contains(ledger.Kinds, kind) {
		return kind, nil
	}
	return "", validation.New("kind", "must be payment, promotion, refund, correction, expiry or usage")
}

func transactionView(t *ledger.Transaction) gen.Transaction {
	view := gen.Transaction{
		ID:        t.ID.String(),
		AccountID: t.AccountID.String(),
		Kind:      gen.TransactionKind(t.Kind),
		Amount:    t.Amount.String(),
		Reference: t.Reference,
		Reason:    convert.Optional(t.Reason),
		Actor:     convert.Optional(t.Actor),
		RequestID: convert.Optional(t.RequestID),
		CreatedAt: t.CreatedAt,

		CreditID:    convert.Optional(creditText(t.CreditID)),
		ExpiresAt:   optionalTime(t.ExpiresAt),
		EffectiveAt: optionalTime(t.EffectiveAt),
	}
	if t.IsCredit() {
		view.Priority = &t.Priority
	}
	return view
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
