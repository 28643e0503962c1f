// Package operationsapi holds the admin API's handlers for operators: proxies, maintenance, diagnosis, audit log, key
// rotation and admin tokens.
package operationsapi

import (
	"modelgateway/controlplane/internal/admin"
	"modelgateway/controlplane/internal/audit"
	"modelgateway/controlplane/internal/catalog"
	"modelgateway/controlplane/internal/diagnosis"
	"modelgateway/controlplane/internal/fleet"
	"modelgateway/controlplane/internal/rotation"
	"modelgateway/controlplane/internal/search"
	"modelgateway/controlplane/internal/signin"
)

// Handlers implements the operations of operators.
type Handlers struct {
	Sessions  *signin.Service
	Finder    *search.Service
	Catalog   *catalog.Service
	Fleet     fleet.Store
	Audit     audit.Store
	Tokens    *admin.Service
	Diagnosis *diagnosis.Service
	Rotations *rotation.Service
}
