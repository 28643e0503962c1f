package httpapi

import (
	"context"
	"encoding/json"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/usage"
	"modelgateway/controlplane/internal/validation"
)

// GetUsageTotals implements gen.StrictServerInterface.
func (s *server) GetUsageTotals(ctx context.Context, r gen.GetUsageTotalsRequestObject) (gen.GetUsageTotalsResponseObject, error) {
	p, err := readPage(r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	q, err := totalQuery(&r.Params, &p)
	if err != nil {
		return nil, err
	}
	currency, err := s.cfg.Catalog.Currency(ctx)
	if err != nil {
		return nil, err
	}
	found, err := s.cfg.Usage.Totals(ctx, q)
	if err != nil {
		return nil, err
	}
	found, cursor := next(p, found, totalPosition)
	return gen.GetUsageTotals200JSONResponse{
		Currency: currency, NextCursor: cursor, Data: all(found, func(t *usage.Total) gen.UsageTotal { return totalView(t, q.By) }),
	}, nil
}

// totalQuery reads the filters of totals.
func totalQuery(params *gen.GetUsageTotalsParams, p *page) (usage.TotalQuery, error) {
	var invalid validation.Errors
	q := usage.TotalQuery{
		By: readGroup(&invalid, params.GroupBy), Model: orEmpty(params.Model), Limit: p.limit + 1,
		From: readDay(&invalid, "from", params.From), To: readDay(&invalid, "to", params.To),
	}
	q.AccountID, q.KeyID = readOwner(&invalid, params.AccountID, params.KeyID)
	checkSpan(&invalid, q.From, q.To)
	if p.cursor != nil {
		q.After = &usage.Total{}
		if err := json.Unmarshal(p.cursor, q.After); err != nil {
			invalid.Add("cursor", "was not given by this list")
		}
	}
	return q, invalid.Err()
}

// readOwner reads the filters of account and key.
func readOwner(invalid *validation.Errors, accountID, keyID *string) (a account.ID, k key.ID) {
	var err error
	if accountID != nil {
		if a, err = account.ParseID(*accountID); err != nil {
			invalid.Add("account_id", "is not the id of an account")
		}
	}
	if keyID != nil {
		if k, err = key.ParseID(*keyID); err != nil {
			invalid.Add("key_id", "is not the id of a key")
		}
	}
	return a, k
}

// readGroup reads what totals tell apart.
func readGroup(invalid *validation.Errors, names []gen.UsageGroup) usage.Group {
	var g usage.Group
	for _, name := range names {
		switch name {
		case "day":
			g.Day = true
		case "account":
			g.Account = true
		case "key":
			g.Key = true
		case "model":
			g.Model = true
		default:
			invalid.Add("group_by", "cannot be %q", name)
		}
	}
	return g
}

// totalPosition is the place of a total in its order.
func totalPosition(t *usage.Total) []byte {
	text, err := json.Marshal(usage.Total{Day: t.Day, AccountID: t.AccountID, KeyID: t.KeyID, Model: t.Model})
	if err != nil { // times, ids and strings always marshal
		panic(err)
	}
	return text
}

func totalView(t *usage.Total, by usage.Group) gen.UsageTotal {
	view := gen.UsageTotal{
		Day: dayView(t.Day, by.Day), Requests: t.Requests, Estimated: t.Estimated, Input: t.Input, CachedInput: t.CachedInput,
		CacheWrite: t.CacheWrite, Output: t.Output, Reasoning: t.Reasoning, AudioIn: t.AudioIn, AudioOut: t.AudioOut, ImageIn: t.ImageIn,
		ImageOut: t.ImageOut, Images: t.Images, Seconds: t.Seconds, ServerToolRequests: t.ServerToolRequests, Cost: t.Cost.String(),
	}
	if by.Account {
		view.AccountID = present(t.AccountID.String())
	}
	if by.Key {
		view.KeyID = present(t.KeyID.String())
	}
	if by.Model {
		view.Model = &t.Model
	}
	return view
}
