package billingapi

import (
	"context"
	"time"

	"modelgateway/controlplane/internal/httpapi/convert"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/ledgercheck"
	"modelgateway/controlplane/internal/validation"
)

func (h *Handlers) StartLedgerCheck(
	ctx context.Context,
	call *gen.Call,
	r gen.StartLedgerCheckRequestObject,
) (gen.StartLedgerCheckResponseObject, error) {
	kind := ledgercheck.Kind(r.Body.Kind)
	if !kind.Startable() {
		return nil, validation.New("kind", "must be %q or %q", ledgercheck.All, ledgercheck.Receipts)
	}
	run, err := h.LedgerChecks.Start(ctx, call.OperationID, kind, call.Actor)
	if err != nil {
		return nil, err
	}
	return gen.StartLedgerCheck202JSONResponse(runView(&run)), nil
}

func (h *Handlers) ListLedgerChecks(
	ctx context.Context,
	_ *gen.Call,
	r gen.ListLedgerChecksRequestObject,
) (gen.ListLedgerChecksResponseObject, error) {
	p, before, err := convert.ReadPageByID(r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}

	q := ledgercheck.Query{Kind: ledgercheck.Kind(convert.Value(r.Params.Kind)), Before: ledgercheck.ID(before), Limit: p.Limit + 1}
	if q.Kind != "" && !q.Kind.Known() {
		return nil, validation.New("kind", "is not a kind of check")
	}

	found, err := h.LedgerChecks.List(ctx, q)
	if err != nil {
		return nil, err
	}

	found, cursor := convert.NextPage(p, found, func(r *ledgercheck.Run) []byte { return r.ID[:] })
	return gen.ListLedgerChecks200JSONResponse{Data: convert.All(found, runView), NextCursor: cursor}, nil
}

func (h *Handlers) GetLedgerCheck(
	ctx context.Context,
	_ *gen.Call,
	r gen.GetLedgerCheckRequestObject,
) (gen.GetLedgerCheckResponseObject, error) {
	id, err := ledgercheck.ParseID(r.CheckID)
	if err != nil {
		return nil, err
	}
	run, err := h.LedgerChecks.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	return gen.GetLedgerCheck200JSONResponse(runView(&run)), nil
}

func runView(r *ledgercheck.Run) gen.LedgerCheckRun {
	view := gen.LedgerCheckRun{
		ID:        r.ID.String(),
		Kind:      gen.LedgerCheckKind(r.Kind),
		State:     gen.LedgerCheckState(r.State),
		Actor:     r.Actor,
		Done:      r.Done,
		Total:     r.Total,
		CreatedAt: r.CreatedAt,
		StartedAt: r.StartedAt,
		EndedAt:   r.EndedAt,
	}
	if r.State == ledgercheck.Done {
		ok, took, checks := r.OK, r.Took.Milliseconds(), convert.All(r.Checks, checkView)
		view.OK, view.TookMS, view.Checks = &ok, &took, checks
	}

	return view
}

func (h *Handlers) GetLedgerBooks(
	ctx context.Context,
	_ *gen.Call,
	r gen.GetLedgerBooksRequestObject,
) (gen.GetLedgerBooksResponseObject, error) {
	var invalid validation.Errors
	p := ledger.Period{From: convert.ReadDay(&invalid, "from", r.Params.From), To: convert.ReadDay(&invalid, "to", r.Params.To)}
	convert.CheckTimeRange(&invalid, p.From, p.To)
	if invalid.Err() != nil {
		return nil, invalid.Err()
	}

	currency, err := h.Catalog.Currency(ctx)
	if err != nil {
		return nil, err
	}

	at := time.Now().UTC()
	books, err := h.Ledger.Books(ctx, p)
	if err != nil {
		return nil, err
	}

	return gen.GetLedgerBooks200JSONResponse{
		At:               at,
		Currency:         currency,
		From:             r.Params.From,
		To:               r.Params.To,
		Sum:              books.Sum().String(),
		NegativeAccounts: books.Negative,
		Overdrawn:        books.Overdrawn.String(),
		Books: convert.All(books.Books, func(b *ledger.Book) gen.LedgerBook {
			return gen.LedgerBook{
				LedgerAccount: gen.LedgerBookLedgerAccount(b.Name),
				Payments:      b.Payments.String(),
				Promotions:    b.Promotions.String(),
				Refunds:       b.Refunds.String(),
				Expired:       b.Expired.String(),
				Corrections:   b.Corrections.String(),
				Usage:         b.Usage.String(),
				Total:         b.Total().String(),
			}
		}),
	}, nil
}
