// Package billingapi holds the admin API's handlers of the ledger, statements, usage records, exports, quarantine
// and video jobs.
package billingapi

import (
	"context"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/archive"
	"modelgateway/controlplane/internal/catalog"
	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/ledgercheck"
	"modelgateway/controlplane/internal/margin"
	"modelgateway/controlplane/internal/settle"
	"modelgateway/controlplane/internal/statement"
	"modelgateway/controlplane/internal/usage"
	"modelgateway/controlplane/internal/videojob"
)

// Handlers implements the operations about money and usage.
type Handlers struct {
	Accounts     *account.Service
	Ledger       *ledger.Service
	LedgerChecks *ledgercheck.Service
	Catalog      *catalog.Service
	Usage        *usage.Service
	Margin       margin.Store
	Statements   *statement.Service
	Archive      *archive.Service
	Quarantine   *settle.Quarantine
	Videos       videojob.Jobs
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
