// Package catalogapi holds the admin API's handlers of the catalog: the whole document, its single entries, prices and
// grants.
package catalogapi

import (
	"context"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/catalog"
	"modelgateway/controlplane/internal/httpapi/convert"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/usage"
	"modelgateway/shared/wire/checkwire"
)

// Handlers implements the operations of the catalog.
type Handlers struct {
	Accounts *account.Service
	Catalog  *catalog.Service
	Usage    *usage.Service
	Checker  Checker
}

// Checker asks a proxy to call a provider.
type Checker interface {
	CheckProvider(ctx context.Context, provider string) (proxy string, checked checkwire.Response, answered bool, err error)
}

// CheckProvider calls a provider and says what comes.
func (h *Handlers) CheckProvider(
	ctx context.Context,
	_ *gen.Call,
	r gen.CheckProviderRequestObject,
) (gen.CheckProviderResponseObject, error) {
	if _, _, err := catalog.Get(ctx, h.Catalog, catalog.ProviderPart(r.ProviderID)); err != nil {
		return nil, err
	}
	proxy, checked, answered, err := h.Checker.CheckProvider(ctx, r.ProviderID)
	if err != nil {
		return nil, err
	}

	return gen.CheckProvider200JSONResponse{
		ProviderID:      r.ProviderID,
		Proxy:           convert.Optional(proxy),
		Answered:        answered,
		CatalogRevision: &checked.CatalogRevision,
		Calls:           convert.All(checked.Calls, checkedCallView),
	}, nil
}

func checkedCallView(c *checkwire.Call) gen.CheckedCall {
	view := gen.CheckedCall{
		Format:        c.Format,
		Result:        gen.CheckedCallResult(c.Result),
		URL:           c.URL,
		Route:         c.Route,
		UpstreamModel: c.UpstreamModel,
		CredentialID:  c.Credential,
		Detail:        convert.Optional(c.Detail),
		Hint:          convert.Optional(c.Hint),
		MS:            c.MS,
	}
	if c.Status != 0 {
		view.Status = &c.Status
	}
	return view
}

// existingAccount parses the id of an account that exists.
func (h *Handlers) existingAccount(ctx context.Context, text string) (account.ID, error) {
	id, err := account.ParseID(text)
	if err != nil {
		return id, err
	}
	_, err = h.Accounts.Get(ctx, id)
	return id, err
}
