package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/catalog"
	"modelgateway/controlplane/internal/etag"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/strict"
)

// GetCatalog implements gen.StrictServerInterface.
func (s *server) GetCatalog(ctx context.Context, r gen.GetCatalogRequestObject) (gen.GetCatalogResponseObject, error) {
	doc, tag, err := s.cfg.Catalog.Export(ctx)
	if err != nil {
		return nil, err
	}
	setETag(ctx, tag)
	if !strings.Contains(orEmpty(r.Params.Accept), "yaml") {
		return gen.GetCatalog200JSONResponse(*doc), nil
	}
	text, err := toYAML(doc)
	if err != nil {
		return nil, err
	}
	return gen.GetCatalog200ApplicationYamlResponse{Body: bytes.NewReader(text), ContentLength: int64(len(text))}, nil
}

// toYAML writes a value with the names and the order of its JSON form.
func toYAML(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("httpapi: encode catalog: %w", err)
	}
	return strict.ToYAML(text)
}

// ApplyCatalog implements gen.StrictServerInterface.
func (s *server) ApplyCatalog(ctx context.Context, r gen.ApplyCatalogRequestObject) (gen.ApplyCatalogResponseObject, error) {
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
		return nil, explain(errMediaType, "the body must be application/json or application/yaml")
	}
	dryRun := r.Params.DryRun != nil && *r.Params.DryRun
	match, err := etag.Parse(orEmpty(r.Params.IfMatch))
	if err != nil {
		return nil, err
	}
	changes, rev, err := s.cfg.Catalog.Apply(ctx, doc, catalog.Options{DryRun: dryRun, Match: match})
	if err != nil {
		return nil, err
	}
	setETag(ctx, etag.OfRev(rev))
	answer := gen.ApplyCatalog200JSONResponse{DryRun: dryRun, Revision: rev, Changes: all(changes, changeView)}
	if dryRun {
		traffic, err := s.cfg.Catalog.Traffic(ctx, changes)
		if err != nil {
			return nil, err
		}
		answer.Accounts = all(traffic, func(t *catalog.Traffic) gen.CatalogAccount {
			return gen.CatalogAccount{AccountID: t.Account.String(), Name: t.Name, Models: t.Models, Requests: t.Requests, Cost: t.Cost.String()}
		})
	}
	return answer, nil
}

func changeView(c *catalog.Change) gen.CatalogChange {
	view := gen.CatalogChange{
		Action: gen.CatalogChangeAction(c.Action), Kind: gen.CatalogChangeKind(c.Kind), ID: c.ID, Before: c.Before, After: c.After,
	}
	if r := c.Reach; r != nil {
		view.Reach = &gen.CatalogReach{
			Models: append([]string{}, r.Models...), Public: r.Public, GrantedAccounts: r.Granted, ActiveAccounts: r.Active,
		}
	}
	return view
}

// ListGrants implements gen.StrictServerInterface.
func (s *server) ListGrants(ctx context.Context, r gen.ListGrantsRequestObject) (gen.ListGrantsResponseObject, error) {
	id, err := s.existing(ctx, r.AccountID)
	if err != nil {
		return nil, err
	}
	models, err := s.cfg.Catalog.Grants(ctx, id)
	if err != nil {
		return nil, err
	}
	return gen.ListGrants200JSONResponse{Models: append([]string{}, models...)}, nil
}

// GrantModel implements gen.StrictServerInterface.
func (s *server) GrantModel(ctx context.Context, r gen.GrantModelRequestObject) (gen.GrantModelResponseObject, error) {
	id, err := s.existing(ctx, r.AccountID)
	if err != nil {
		return nil, err
	}
	if err := s.cfg.Catalog.Grant(ctx, id, r.ModelID, true); err != nil {
		return nil, err
	}
	return gen.GrantModel204Response{}, nil
}

// WithdrawModel implements gen.StrictServerInterface.
func (s *server) WithdrawModel(ctx context.Context, r gen.WithdrawModelRequestObject) (gen.WithdrawModelResponseObject, error) {
	id, err := s.existing(ctx, r.AccountID)
	if err != nil {
		return nil, err
	}
	if err := s.cfg.Catalog.Grant(ctx, id, r.ModelID, false); err != nil {
		return nil, err
	}
	return gen.WithdrawModel204Response{}, nil
}

// existing reads the id of an account that there is.
func (s *server) existing(ctx context.Context, text string) (account.ID, error) {
	id, err := account.ParseID(text)
	if err != nil {
		return id, err
	}
	_, err = s.cfg.Accounts.Get(ctx, id)
	return id, err
}
