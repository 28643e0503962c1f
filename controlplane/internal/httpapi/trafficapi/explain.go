package trafficapi

import (
	"context"

	"modelgateway/controlplane/internal/explain"
	"modelgateway/controlplane/internal/httpapi/convert"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/money"
	"modelgateway/shared/price"
	"modelgateway/shared/wire"
)

func (h *Handlers) ExplainRequest(
	ctx context.Context,
	_ *gen.Call,
	r gen.ExplainRequestRequestObject,
) (gen.ExplainRequestResponseObject, error) {
	p := r.Params
	var invalid validation.Errors
	ofAccount, ofKey := convert.ReadOwner(&invalid, p.AccountID, p.KeyID)
	if err := invalid.Err(); err != nil {
		return nil, err
	}

	q := explain.Query{
		Model:       p.Model,
		Format:      catalogkv.Chat,
		Stream:      convert.Value(p.Stream),
		MaxTokens:   convert.Value(p.MaxTokens),
		N:           convert.Value(p.N),
		InputTokens: convert.Value(p.InputTokens),
		Parameters:  convert.Value(p.Parameters),
	}
	if p.AccountID != nil {
		q.Account = &ofAccount
	}
	if p.KeyID != nil {
		q.Key = &ofKey
	}
	if p.Format != nil {
		q.Format = catalogkv.Format(*p.Format)
	}

	e, err := h.Explainer.Explain(ctx, &q)
	if err != nil {
		return nil, err
	}

	return gen.ExplainRequest200JSONResponse(explanationView(&q, e)), nil
}

func explanationView(q *explain.Query, e *explain.Explanation) gen.RequestExplanation {
	view := gen.RequestExplanation{
		At:        e.At,
		AccountID: e.Record.AccountID,
		KeyID:     convert.Optional(e.Record.KeyID),
		Model:     q.Model,
		Format:    string(q.Format),
		Outcome:   gen.RequestExplanationOutcome(e.Outcome),
		Currency:  &e.Currency,
		Needs:     convert.All(e.Needs, func(n *explain.Need) gen.ExplainedNeed { return needView(n, e.Record.KeyID) }),
		Visibility: gen.ModelVisibility{
			Exists:         e.Visibility.Exists,
			Enabled:        e.Visibility.Enabled,
			Public:         e.Visibility.Public,
			Granted:        e.Visibility.Granted,
			SupportsFormat: e.Visibility.SupportsFormat,
		},
		Proxies: convert.All(e.Proxies, explainingProxyView),
		Silent:  e.Silent,
	}
	if view.Silent == nil {
		view.Silent = []string{}
	}

	if e.Refusal != nil {
		refusal := refusedStepView(e.Refusal)
		view.Refusal = &refusal
	}

	if p := e.Priced; p != nil {
		view.Price = &gen.ExplainedPrice{
			Version:     p.PriceVersion,
			Multiplier:  price.Multiplier(p.PriceMultiplier).Or(price.One).String(),
			InputTokens: p.InputTokens,
			Reservation: money.Nano(p.Reservation).String(),
		}
	}

	return view
}

func needView(n *explain.Need, keyID string) gen.ExplainedNeed {
	view := gen.ExplainedNeed{
		Pool:      convert.PoolKind(n.Kind),
		OfKey:     n.OfKey,
		Wanted:    convert.PoolAmount(n.Kind, n.Amount),
		Enough:    n.Enough,
		Unlimited: n.Unlimited,
	}
	if !n.Unlimited {
		view.Available, view.Reserved = new(convert.PoolAmount(n.Kind, n.Available)), new(convert.PoolAmount(n.Kind, n.Reserved))
	}
	switch {
	case n.Limit != nil:
		view.LimitScope, view.LimitID = new(gen.LimitScope(n.Limit.Scope)), &n.Limit.Name
	case n.Kind == wire.Limit && !n.Unlimited: // the spend limit of the key
		view.LimitScope, view.LimitID = new(gen.LimitScopeKey), &keyID
	}
	if !n.ResetsAt.IsZero() {
		view.LimitResetsAt = &n.ResetsAt
	}
	return view
}

func explainingProxyView(p *wire.ExplainResponse) gen.ProxyExplanation {
	return gen.ProxyExplanation{
		Proxy:           p.Name,
		CatalogRevision: p.CatalogRevision,
		Refusals:        convert.All(p.Refusals, refusedStepView),
		Routes: convert.All(p.Routes, func(r *wire.ExplainRoute) gen.ExplainedRoute {
			return gen.ExplainedRoute{
				Route:         r.Route,
				ProviderID:    r.Provider,
				UpstreamModel: r.UpstreamModel,
				URL:           convert.Optional(r.URL),
				Priority:      r.Priority,
				Weight:        r.Weight,
				CredentialID:  convert.Optional(r.Credential),
				Skipped:       convert.Optional(r.Skipped),
			}
		}),
	}
}

func refusedStepView(r *wire.ExplainRefusal) gen.ExplainedRefusal {
	view := gen.ExplainedRefusal{
		Step:    string(r.Step),
		Status:  r.Status,
		Code:    convert.Optional(r.Code),
		Message: r.Message,
		Param:   convert.Optional(r.Param),
		Reason:  convert.Optional(string(r.Reason)),
	}
	if r.RetryAfter > 0 {
		view.RetryAfter = &r.RetryAfter
	}
	return view
}
