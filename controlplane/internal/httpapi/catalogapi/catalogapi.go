// Package catalogapi holds the admin API's handlers of the catalog: the whole document, its single entries, prices and
// grants.
package catalogapi

import (
	"context"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/catalog"
	"modelgateway/controlplane/internal/usage"
)

// Handlers implements the operations of the catalog.
type Handlers struct {
	Accounts *account.Service
	Catalog  *catalog.Service
	Usage    *usage.Service
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
