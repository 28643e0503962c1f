// Package fleet shows operators the proxies: their sessions, the revisions that they have applied,
// and their load. Package leasing manages the sessions.
package fleet

import (
	"context"
	"time"
)

// The states of a session that is not closed.
const (
	Active = "active"
	// Expired: the session deadline has passed, but the session is not fenced yet.
	Expired = "expired"
	// Fenced: the session gets no grants any more. Its leases are kept, because usage may still arrive.
	Fenced = "fenced"
)

// Proxy is one open session of a proxy.
type Proxy struct {
	Session      int64
	Name         string
	BootID       string
	Build        string
	State        string
	Draining     bool
	ValidUntil   time.Time
	RegisteredAt time.Time
	RenewedAt    time.Time
	// AppliedRev is the revision of keys and accounts that the proxy has applied, CatalogRev that of the catalog.
	AppliedRev int64
	CatalogRev int64
	// Running is the number of requests in flight; SpoolUsed of SpoolCapacity units hold events that are not
	// settled.
	Running       int64
	SpoolUsed     int64
	SpoolCapacity int64
}

// Unsettled returns the number of finished requests whose usage is not settled. A draining proxy
// is done when it has neither running requests nor unsettled usage.
func (d *Proxy) Unsettled() int64 { return max(d.SpoolUsed-d.Running, 0) }

// Fleet is the list of open sessions, with the newest revisions.
type Fleet struct {
	// Rev is the newest revision of keys and accounts, CatalogRev of the catalog.
	Rev        int64
	CatalogRev int64
	Proxies    []Proxy
	// RefusedCredentials are the credentials that their providers refuse.
	RefusedCredentials []RefusedCredential
}

// RefusedCredential is a credential that its provider refuses. Proxies use other credentials of the provider
// and retry this one periodically.
type RefusedCredential struct {
	Provider, Credential, CredentialID string
	// Reason is wire.KeyRejected or wire.QuotaExhausted.
	Reason string
	Since  time.Time
	// Proxies has the names of the proxies that report it.
	Proxies []string
}

// Store reads the fleet.
type Store interface {
	Fleet(ctx context.Context) (Fleet, error)
}
