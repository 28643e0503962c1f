package catalogapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"modelgateway/controlplane/internal/admin"
	"modelgateway/controlplane/internal/catalog"
	"modelgateway/controlplane/internal/etag"
	"modelgateway/controlplane/internal/httpapi/convert"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/httpapi/problem"
	"modelgateway/controlplane/internal/strict"
)

func (h *Handlers) GetCatalog(ctx context.Context, call *gen.Call, r gen.GetCatalogRequestObject) (gen.GetCatalogResponseObject, error) {
	doc, tag, err := h.Catalog.Export(ctx)
	if err != nil {
		return nil, err
	}
	call.ETag = tag
	if !admin.SeesProviderCost(ctx) {
		doc.HideProviderPrices()
	}
	if !strings.Contains(convert.Text(r.Params.Accept), "yaml") {
		return gen.GetCatalog200JSONResponse(*doc), nil
	}
	text, err := toYAML(doc)
	if err != nil {
		return nil, err
	}
	return gen.GetCatalog200ApplicationYamlResponse{Body: bytes.NewReader(text), ContentLength: int64(len(text))}, nil
}

// toYAML encodes a value as YAML, with the names and the order of its JSON form.
func toYAML(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("httpapi: encode catalog: %w", err)
	}
	return strict.ToYAML(text)
}

func (h *Handlers) ApplyCatalog(
	ctx context.Context,
	call *gen.Call,
	r gen.ApplyCatalogRequestObject,
) (gen.ApplyCatalogResponseObject, error) {
	doc := r.JSONBody
	switch {
	case doc != nil:
	case r.Body != nil:
		text, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		doc = &catalog.Document{}
		if err := strict.YAML(text, doc); err != nil {
			return nil, err
		}
	default:
		return nil, problem.Explain(problem.ErrMediaType, "the body must be application/json or application/yaml")
	}

	dryRun := r.Params.DryRun != nil && *r.Params.DryRun
	match, err := etag.Parse(convert.Text(r.Params.IfMatch))
	if err != nil {
		return nil, err
	}

	outcome, err := h.Catalog.Apply(ctx, doc, catalog.Options{DryRun: dryRun, Match: match})
	if err != nil {
		return nil, err
	}

	call.ETag = etag.OfRev(outcome.Rev)
	answer := gen.ApplyCatalog200JSONResponse{DryRun: dryRun, Revision: outcome.Rev, Changes: convert.All(outcome.Changes, changeView)}
	if !dryRun {
		call.Changes.AddCatalog(outcome.Rev)
	} else {
		traffic, err := h.Catalog.Traffic(ctx, outcome.Changes)
		if err != nil {
			return nil, err
		}
		answer.Accounts = convert.All(traffic, func(t *catalog.Traffic) gen.CatalogAccount {
			return gen.CatalogAccount{
				AccountID: t.Account.String(),
				Name:      t.Name,
				Models:    t.Models,
				Requests:  t.Requests,
				Cost:      t.Cost.String(),
			}
		})
	}

	return answer, nil
}

func changeView(c *catalog.Change) gen.CatalogChange {
	view := gen.CatalogChange{
		Action: gen.CatalogChangeAction(c.Action),
		Kind:   gen.CatalogChangeKind(c.Kind),
		ID:     c.ID,
		Before: c.Before,
		After:  c.After,
	}
	for i := range c.Calls {
		call := &c.Calls[i]
		view.Calls = append(view.Calls, gen.CatalogCall{
			Route:  call.Route,
			Format: string(call.Format),
			Stream: call.Stream,
			Before: convert.Optional(call.Before),
			After:  call.After,
		})
	}
	if r := c.Reach; r != nil {
		view.Reach = &gen.CatalogReach{
			Models:          append([]string{}, r.Models...),
			Public:          r.Public,
			GrantedAccounts: r.Granted,
			ActiveAccounts:  r.Active,
		}
	}

	return view
}

func (h *Handlers) ListGrants(ctx context.Context, _ *gen.Call, r gen.ListGrantsRequestObject) (gen.ListGrantsResponseObject, error) {
	id, err := h.existingAccount(ctx, r.AccountID)
	if err != nil {
		return nil, err
	}
	models, err := h.Catalog.Grants(ctx, id)
	if err != nil {
		return nil, err
	}
	return gen.ListGrants200JSONResponse{Models: append([]string{}, models...)}, nil
}

func (h *Handlers) GrantModel(ctx context.Context, call *gen.Call, r gen.GrantModelRequestObject) (gen.GrantModelResponseObject, error) {
	id, err := h.existingAccount(ctx, r.AccountID)
	if err != nil {
		return nil, err
	}
	rev, err := h.Catalog.Grant(ctx, id, r.ModelID, true)
	if err != nil {
		return nil, err
	}
	call.Changes.AddCatalog(rev)
	return gen.GrantModel204Response{}, nil
}

func (h *Handlers) WithdrawModel(
	ctx context.Context,
	call *gen.Call,
	r gen.WithdrawModelRequestObject,
) (gen.WithdrawModelResponseObject, error) {
	id, err := h.existingAccount(ctx, r.AccountID)
	if err != nil {
		return nil, err
	}
	rev, err := h.Catalog.Grant(ctx, id, r.ModelID, false)
	if err != nil {
		return nil, err
	}
	call.Changes.AddCatalog(rev)
	return gen.WithdrawModel204Response{}, nil
}
