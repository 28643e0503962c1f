package accountapi

import (
	"context"
	"encoding/binary"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/etag"
	"modelgateway/controlplane/internal/httpapi/convert"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/validation"
)

func (h *Handlers) CreateAccount(
	ctx context.Context,
	call *gen.Call,
	r gen.CreateAccountRequestObject,
) (gen.CreateAccountResponseObject, error) {
	own, models, err := multipliers(r.Body.PriceMultiplier, r.Body.ModelMultipliers)
	n := account.New{
		ID:                    call.OperationID,
		Name:                  r.Body.Name,
		ExternalID:            convert.Text(r.Body.ExternalID),
		MaxConcurrentRequests: r.Body.MaxConcurrentRequests,
		MaxOpenVideoJobs:      r.Body.MaxOpenVideoJobs,
		PriceMultiplier:       convert.Value(own),
		ModelMultipliers:      convert.Value(models),
		IncludeCost:           convert.Value(r.Body.IncludeCost),
		Metadata:              convert.Value(r.Body.Metadata),
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

func (h *Handlers) ListAccounts(ctx context.Context, _ *gen.Call, r gen.ListAccountsRequestObject) (gen.ListAccountsResponseObject, error) {
	p, err := convert.ReadPage(r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}

	q, err := accountQuery(&r.Params, &p)
	if err != nil {
		return nil, err
	}

	found, err := h.Accounts.List(ctx, q)
	if err != nil {
		return nil, err
	}

	found, cursor := convert.NextPage(p, found, func(a *account.Account) []byte {
		if q.Sort == account.ByCreation {
			return a.ID[:]
		}
		return append(binary.BigEndian.AppendUint64(nil, uint64(q.Sort.Rank(a))), a.ID[:]...)
	})
	views, err := h.accounts(ctx, found)
	if err != nil {
		return nil, err
	}

	return gen.ListAccounts200JSONResponse{Data: views, NextCursor: cursor}, nil
}

// accountQuery parses the filters and the position of the list. The position in a sorted list is the rank and the id.
func accountQuery(params *gen.ListAccountsParams, p *convert.Page) (account.Query, error) {
	q := account.Query{
		Text:       convert.Text(params.Query),
		Status:     account.Status(convert.Value(params.Status)),
		ExternalID: convert.Text(params.ExternalID),
		Sort:       account.ByCreation,
		Limit:      p.Limit + 1,
	}

	var invalid validation.Errors
	if q.Status != "" && q.Status != account.Active && q.Status != account.Suspended {
		invalid.Add("status", "must be %q or %q", account.Active, account.Suspended)
	}
	if sort := params.Sort; sort != nil {
		q.Sort = account.Sort(*sort)
	}

	switch q.Sort {
	case account.ByCreation:
	case account.ByBalance, account.ByCost, account.ByHoursLeft:
		const rankLen = 8
		if p.Cursor != nil && len(p.Cursor) < rankLen {
			return q, convert.InvalidCursor()
		}
		if p.Cursor != nil {
			q.AfterRank, p.Cursor = int64(binary.BigEndian.Uint64(p.Cursor)), p.Cursor[rankLen:]
		}
	default:
		invalid.Add("sort", "is not an order of accounts")
	}

	after, err := p.UUID()
	q.After = account.ID(after)
	return q, validation.Merge(invalid.Err(), err)
}

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

func (h *Handlers) UpdateAccount(
	ctx context.Context,
	call *gen.Call,
	r gen.UpdateAccountRequestObject,
) (gen.UpdateAccountResponseObject, error) {
	id, err := account.ParseID(r.AccountID)
	if err != nil {
		return nil, err
	}

	match, unread := etag.Parse(convert.Text(r.Params.IfMatch))
	own, models, err := multipliers(r.Body.PriceMultiplier, r.Body.ModelMultipliers)
	p := account.Patch{
		Match:                 match,
		Name:                  r.Body.Name,
		Status:                (*account.Status)(r.Body.Status),
		MaxConcurrentRequests: r.Body.MaxConcurrentRequests,
		PriceMultiplier:       own,
		ModelMultipliers:      models,
		IncludeCost:           r.Body.IncludeCost,
		Metadata:              (*map[string]string)(r.Body.Metadata),
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
			ID:                    a.ID.String(),
			ExternalID:            convert.Optional(a.ExternalID),
			Name:                  a.Name,
			Status:                gen.AccountStatus(a.Status),
			MaxConcurrentRequests: a.MaxConcurrentRequests,
			MaxOpenVideoJobs:      a.MaxOpenVideoJobs,
			PriceMultiplier:       a.PriceMultiplier.String(),
			ModelMultipliers:      multipliersView(a.ModelMultipliers),
			IncludeCost:           a.IncludeCost,
			Balance:               balanceView(currency, a.Balance),
			CostToday:             a.Figures.CostToday.String(),
			Cost7D:                a.Figures.Cost7d.String(),
			HoursLeft:             a.Figures.HoursLeft,
			Metadata:              metadataView(a.Metadata),
			CreatedAt:             a.CreatedAt,
			UpdatedAt:             a.UpdatedAt,
		}
	}), nil
}

func metadataView(metadata map[string]string) gen.Metadata {
	if metadata == nil {
		return gen.Metadata{}
	}
	return metadata
}

func balanceView(currency string, b account.Balance) gen.Balance {
	return gen.Balance{
		Currency:  currency,
		Balance:   b.Balance.String(),
		Reserved:  b.Reserved.String(),
		Available: b.Available.String(),
	}
}
