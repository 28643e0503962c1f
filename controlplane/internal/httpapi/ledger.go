package httpapi

import (
	"context"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/audit"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/idempotency"
	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/validation"
)

// GetBalance implements gen.StrictServerInterface.
func (s *server) GetBalance(ctx context.Context, r gen.GetBalanceRequestObject) (gen.GetBalanceResponseObject, error) {
	id, err := account.ParseID(r.AccountID)
	if err != nil {
		return nil, err
	}
	balance, err := s.cfg.Ledger.Balance(ctx, id)
	if err != nil {
		return nil, err
	}
	currency, err := s.cfg.Catalog.Currency(ctx)
	if err != nil {
		return nil, err
	}
	return gen.GetBalance200JSONResponse(balanceView(currency, balance)), nil
}

// creditKinds maps the kinds of the API to those of the books.
var creditKinds = map[gen.CreditKind]ledger.Kind{
	gen.CreditKindTopUp:      ledger.Credit,
	gen.CreditKindCorrection: ledger.Correction,
}

// CreateCredit implements gen.StrictServerInterface.
func (s *server) CreateCredit(ctx context.Context, r gen.CreateCreditRequestObject) (gen.CreateCreditResponseObject, error) {
	id, err := account.ParseID(r.AccountID)
	if err != nil {
		return nil, err
	}
	n, unread := amount("amount", &r.Body.Amount)
	kind, known := creditKinds[r.Body.Kind]
	if !known {
		unread = validation.Merge(unread, validation.New("kind", "must be %q or %q", gen.CreditKindTopUp, gen.CreditKindCorrection))
	}
	t := ledger.Transaction{
		ID: ledger.ID(idempotency.Operation(ctx)), AccountID: id, Kind: kind, Amount: valueOf(n),
		Reference: r.Body.Reference, Reason: orEmpty(r.Body.Reason), RequestID: orEmpty(r.Body.RequestID), Actor: audit.By(ctx).Name,
	}
	if err := validation.Merge(unread, t.Validate()); err != nil {
		return nil, err
	}
	booked, posted, err := s.cfg.Ledger.Post(ctx, t)
	switch {
	case err != nil:
		return nil, err
	case posted:
		return gen.CreateCredit201JSONResponse(transactionView(&booked)), nil
	default:
		return gen.CreateCredit200JSONResponse(transactionView(&booked)), nil
	}
}

// ListLedger implements gen.StrictServerInterface.
func (s *server) ListLedger(ctx context.Context, r gen.ListLedgerRequestObject) (gen.ListLedgerResponseObject, error) {
	id, err := account.ParseID(r.AccountID)
	if err != nil {
		return nil, err
	}
	p, err := readPage(r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	before, err := p.uuid()
	if err != nil {
		return nil, err
	}
	if _, err := s.cfg.Accounts.Get(ctx, id); err != nil {
		return nil, err
	}
	found, err := s.cfg.Ledger.List(ctx, ledger.Query{AccountID: id, Before: ledger.ID(before), Limit: p.limit + 1})
	if err != nil {
		return nil, err
	}
	found, cursor := next(p, found, func(t *ledger.Transaction) []byte { return t.ID[:] })
	return gen.ListLedger200JSONResponse{Data: all(found, transactionView), NextCursor: cursor}, nil
}

// kindView is the API's name of a kind of the books.
func kindView(kind ledger.Kind) gen.TransactionKind {
	if kind == ledger.Credit {
		return gen.TransactionKindTopUp
	}
	return gen.TransactionKind(kind)
}

func transactionView(t *ledger.Transaction) gen.Transaction {
	return gen.Transaction{
		ID: t.ID.String(), AccountID: t.AccountID.String(), Kind: kindView(t.Kind), Amount: t.Amount.String(),
		Reference: t.Reference, Reason: present(t.Reason), Actor: present(t.Actor), RequestID: present(t.RequestID), CreatedAt: t.CreatedAt,
	}
}

// CheckLedger implements gen.StrictServerInterface.
func (s *server) CheckLedger(ctx context.Context, r gen.CheckLedgerRequestObject) (gen.CheckLedgerResponseObject, error) {
	compare := s.cfg.Ledger.Check
	if r.Params.Changed != nil && *r.Params.Changed {
		compare = s.cfg.Ledger.CheckChanged
	}
	report, err := compare(ctx)
	if err != nil {
		return nil, err
	}
	return gen.CheckLedger200JSONResponse{OK: report.OK(), At: report.At, TookMS: report.Took.Milliseconds(), Checks: all(report.Checks, checkView)}, nil
}

// CheckReceipts implements gen.StrictServerInterface.
func (s *server) CheckReceipts(ctx context.Context, _ gen.CheckReceiptsRequestObject) (gen.CheckReceiptsResponseObject, error) {
	check, err := s.cfg.Usage.CheckReceipts(ctx)
	if err != nil {
		return nil, err
	}
	return gen.CheckReceipts200JSONResponse(checkView(&check)), nil
}

func checkView(c *ledger.Check) gen.InvariantCheck {
	view := gen.InvariantCheck{Name: c.Name, OK: c.Differing == 0, Compared: c.Compared, Differing: c.Differing}
	if c.First != nil {
		view.First = &gen.Difference{Row: c.First.Row, Want: c.First.Want, Got: c.First.Got}
	}
	return view
}
