package accountapi

import (
	"context"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/etag"
	"modelgateway/controlplane/internal/httpapi/convert"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/validation"
)

// CreateAccount implements gen.StrictServerInterface.
func (h *Handlers) CreateAccount(ctx context.Context, call *gen.Call, r gen.CreateAccountRequestObject) (gen.CreateAccountResponseObject, error) {
	own, models, err := multipliers(r.Body.PriceMultiplier, r.Body.ModelMultipliers)
	n := account.New{
		ID: call.OperationID, Name: r.Body.Name, ExternalID: convert.Text(r.Body.ExternalID),
		MaxConcurrentRequests: r.Body.MaxConcurrentRequests, MaxOpenVideoJobs: r.Body.MaxOpenVideoJobs,
		PriceMultiplier: convert.Value(own), ModelMultipliers: convert.Value(models),
	}
	if err := validation.Merge(err, n.Validate()); err != nil {
		return nil, err
	}
	a, err := h.Accounts.Create(ctx, n)
	if err != nil {
		return nil, err
	}
	view, err := h.account(ctx, call, &a)
	if err != nil {
		return nil, err
	}
	return gen.CreateAccount201JSONResponse(view), nil
}

// ListAccounts implements gen.StrictServerInterface.
func (h *Handlers) ListAccounts(ctx context.Context, _ *gen.Call, r gen.ListAccountsRequestObject) (gen.ListAccountsResponseObject, error) {
	p, err := convert.ReadPage(r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	after, err := p.UUID()
	if err != nil {
		return nil, err
	}
	found, err := h.Accounts.List(ctx, account.Query{
		ExternalID: convert.Text(r.Params.ExternalID), After: account.ID(after), Limit: p.Limit + 1,
	})
	if err != nil {
		return nil, err
	}
	found, cursor := convert.NextPage(p, found, func(a *account.Account) []byte { return a.ID[:] })
	views, err := h.accounts(ctx, found)
	if err != nil {
		return nil, err
	}
	return gen.ListAccounts200JSONResponse{Data: views, NextCursor: cursor}, nil
}

// GetAccount implements gen.StrictServerInterface.
func (h *Handlers) GetAccount(ctx context.Context, call *gen.Call, r gen.GetAccountRequestObject) (gen.GetAccountResponseObject, error) {
	id, err := account.ParseID(r.AccountID)
	if err != nil {
		return nil, err
	}
	a, err := h.Accounts.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	view, err := h.account(ctx, call, &a)
	if err != nil {
		return nil, err
	}
	return gen.GetAccount200JSONResponse(view), nil
}

// UpdateAccount implements gen.StrictServerInterface.
func (h *Handlers) UpdateAccount(ctx context.Context, call *gen.Call, r gen.UpdateAccountRequestObject) (gen.UpdateAccountResponseObject, error) {
	id, err := account.ParseID(r.AccountID)
	if err != nil {
		return nil, err
	}
	match, unread := etag.Parse(convert.Text(r.Params.IfMatch))
	own, models, err := multipliers(r.Body.PriceMultiplier, r.Body.ModelMultipliers)
	p := account.Patch{
		Match: match, Name: r.Body.Name, Status: (*account.Status)(r.Body.Status), MaxConcurrentRequests: r.Body.MaxConcurrentRequests,
		PriceMultiplier: own, ModelMultipliers: models,
	}
	p.MaxOpenVideoJobs, p.SetVideoJobs = r.Body.MaxOpenVideoJobs.Get()
	if err := validation.Merge(unread, err, p.Validate()); err != nil {
		return nil, err
	}
	updated, err := h.Accounts.Patch(ctx, id, p)
	if err != nil {
		return nil, err
	}
	call.Changes.AddKey(updated.Change)
	view, err := h.account(ctx, call, &updated.Account)
	if err != nil {
		return nil, err
	}
	return gen.UpdateAccount200JSONResponse(view), nil
}

// GetBalance implements gen.StrictServerInterface.
func (h *Handlers) GetBalance(ctx context.Context, _ *gen.Call, r gen.GetBalanceRequestObject) (gen.GetBalanceResponseObject, error) {
	id, err := account.ParseID(r.AccountID)
	if err != nil {
		return nil, err
	}
	balance, err := h.Ledger.Balance(ctx, id)
	if err != nil {
		return nil, err
	}
	currency, err := h.Catalog.Currency(ctx)
	if err != nil {
		return nil, err
	}
	return gen.GetBalance200JSONResponse(balanceView(currency, balance)), nil
}

// account returns one account as the API shows it, and sets its ETag.
func (h *Handlers) account(ctx context.Context, call *gen.Call, a *account.Account) (gen.Account, error) {
	call.ETag = a.Tag()
	views, err := h.accounts(ctx, []account.Account{*a})
	if err != nil {
		return gen.Account{}, err
	}
	return views[0], nil
}

func (h *Handlers) accounts(ctx context.Context, accounts []account.Account) ([]gen.Account, error) {
	currency, err := h.Catalog.Currency(ctx)
	if err != nil {
		return nil, err
	}
	return convert.All(accounts, func(a *account.Account) gen.Account {
		return gen.Account{
			ID: a.ID.String(), ExternalID: convert.Optional(a.ExternalID), Name: a.Name, Status: gen.AccountStatus(a.Status),
			MaxConcurrentRequests: a.MaxConcurrentRequests, MaxOpenVideoJobs: a.MaxOpenVideoJobs, PriceMultiplier: a.PriceMultiplier.String(),
			ModelMultipliers: multipliersView(a.ModelMultipliers), Balance: balanceView(currency, a.Balance),
			CreatedAt: a.CreatedAt, UpdatedAt: a.UpdatedAt,
		}
	}), nil
}

func balanceView(currency string, b account.Balance) gen.Balance {
	return gen.Balance{
		Currency: currency, Balance: b.Balance.String(), Reserved: b.Reserved.String(), Available: b.Available.String(),
	}
}
