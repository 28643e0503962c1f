// Package accountapi holds the admin API's handlers of accounts, their balance, their projects, their limits and their API keys.
package accountapi

import (
	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/catalog"
	"modelgateway/controlplane/internal/holding"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/project"
	"modelgateway/controlplane/internal/spendlimit"
)

// Handlers implements the operations of accounts, projects and keys.
type Handlers struct {
	Accounts *account.Service
	Keys     *key.Service
	Ledger   *ledger.Service
	Catalog  *catalog.Service
	Holdings *holding.Service
	Projects *project.Service
	Limits   *spendlimit.Service
}
