package httpapi

import (
	"context"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/etag"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/idempotency"
	"modelgateway/controlplane/internal/validation"
)

// CreateAccount implements gen.StrictServerInterface.
func (s *server) CreateAccount(ctx context.Context, r gen.CreateAccountRequestObject) (gen.CreateAccountResponseObject, error) {
	own, models, err := multipliers(r.Body.PriceMultiplier, r.Body.ModelMultipliers)
	n := account.New{
		ID: idempotency.Operation(ctx), Name: r.Body.Name, ExternalID: orEmpty(r.Body.ExternalID),
		MaxConcurrentRequests: r.Body.MaxConcurrentRequests, PriceMultiplier: valueOf(own), ModelMultipliers: valueOf(models),
	}
	if err := validation.Merge(err, n.Validate()); err != nil {
		return nil, err
	}
	a, err := s.cfg.Accounts.Create(ctx, n)
	if err != nil {
		return nil, err
	}
	view, err := s.account(ctx, &a)
	if err != nil {
		return nil, err
	}
	return gen.CreateAccount201JSONResponse(view), nil
}

// ListAccounts implements gen.StrictServerInterface.
func (s *server) ListAccounts(ctx context.Context, r gen.ListAccountsRequestObject) (gen.ListAccountsResponseObject, error) {
	p, err := readPage(r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	after, err := p.uuid()
	if err != nil {
		return nil, err
	}
	found, err := s.cfg.Accounts.List(ctx, account.Query{
		ExternalID: orEmpty(r.Params.ExternalID), After: account.ID(after), Limit: p.limit + 1,
	})
	if err != nil {
		return nil, err
	}
	found, cursor := next(p, found, func(a *account.Account) []byte { return a.ID[:] })
	views, err := s.accounts(ctx, found)
	if err != nil {
		return nil, err
	}
	return gen.ListAccounts200JSONResponse{Data: views, NextCursor: cursor}, nil
}

// GetAccount implements gen.StrictServerInterface.
func (s *server) GetAccount(ctx context.Context, r gen.GetAccountRequestObject) (gen.GetAccountResponseObject, error) {
	id, err := account.ParseID(r.AccountID)
	if err != nil {
		return nil, err
	}
	a, err := s.cfg.Accounts.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	view, err := s.account(ctx, &a)
	if err != nil {
		return nil, err
	}
	return gen.GetAccount200JSONResponse(view), nil
}

// UpdateAccount implements gen.StrictServerInterface.
func (s *server) UpdateAccount(ctx context.Context, r gen.UpdateAccountRequestObject) (gen.UpdateAccountResponseObject, error) {
	id, err := account.ParseID(r.AccountID)
	if err != nil {
		return nil, err
	}
	match, unread := etag.Parse(orEmpty(r.Params.IfMatch))
	own, models, err := multipliers(r.Body.PriceMultiplier, r.Body.ModelMultipliers)
	p := account.Patch{
		Match: match, Name: r.Body.Name, Status: (*account.Status)(r.Body.Status), MaxConcurrentRequests: r.Body.MaxConcurrentRequests,
		PriceMultiplier: own, ModelMultipliers: models,
	}
	if err := validation.Merge(unread, err, p.Validate()); err != nil {
		return nil, err
	}
	a, err := s.cfg.Accounts.Patch(ctx, id, p)
	if err != nil {
		return nil, err
	}
	view, err := s.account(ctx, &a)
	if err != nil {
		return nil, err
	}
	return gen.UpdateAccount200JSONResponse(view), nil
}

// account shows one account, with its tag.
func (s *server) account(ctx context.Context, a *account.Account) (gen.Account, error) {
	setETag(ctx, a.Tag())
	views, err := s.accounts(ctx, []account.Account{*a})
	if err != nil {
		return gen.Account{}, err
	}
	return views[0], nil
}

func (s *server) accounts(ctx context.Context, accounts []account.Account) ([]gen.Account, error) {
	currency, err := s.cfg.Catalog.Currency(ctx)
	if err != nil {
		return nil, err
	}
	return all(accounts, func(a *account.Account) gen.Account {
		return gen.Account{
			ID: a.ID.String(), ExternalID: present(a.ExternalID), Name: a.Name, Status: gen.AccountStatus(a.Status),
			MaxConcurrentRequests: a.MaxConcurrentRequests, PriceMultiplier: a.PriceMultiplier.String(),
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
