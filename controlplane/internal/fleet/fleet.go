// Package fleet owns the operators' view of the proxies: which ones live, what
// they have applied and how much they carry. The sessions themselves belong to
// package leasing.
package fleet

import (
	"context"
	"time"
)

// The states of a session that is not closed.
const (
	Active = "active"
	// Expired: not renewed in time, and not fenced yet.
	Expired = "expired"
	// Fenced: admits nothing any more; its leases are kept for usage that may still come.
	Fenced = "fenced"
)

// Dataplane is one open session of a proxy.
type Dataplane struct {
	Session      int64
	Name         string
	BootID       string
	Build        string
	State        string
	Draining     bool
	ValidUntil   time.Time
	RegisteredAt time.Time
	RenewedAt    time.Time
	// AppliedRev is the revision of keys and accounts that the proxy acts by, CatalogRev the catalog's.
	AppliedRev int64
	CatalogRev int64
	// Running is requests in flight; SpoolUsed of SpoolCapacity places hold events that are not settled.
	Running       int64
	SpoolUsed     int64
	SpoolCapacity int64
}

// Unsettled is how much usage of finished requests still has to be settled. A
// proxy that drains is done when it has neither running requests nor any of
// this.
func (d *Dataplane) Unsettled() int64 { return max(d.SpoolUsed-d.Running, 0) }

// Fleet is all open sessions, with what they should have applied.
type Fleet struct {
	// Rev is the newest change of keys and accounts, CatalogRev of the catalog.
	Rev        int64
	CatalogRev int64
	Dataplanes []Dataplane
	// Refused are the credentials that their providers refuse.
	Refused []Refused
}

// Refused is a credential that its provider refuses: proxies use others of the
// provider, and try it again from time to time.
type Refused struct {
	Provider, Credential, CredentialID string
	// Reason is lease.KeyRejected or lease.QuotaExhausted.
	Reason string
	Since  time.Time
	// Dataplanes names the proxies that find it so.
	Dataplanes []string
}

// Store reads the fleet.
type Store interface {
	Fleet(ctx context.Context) (Fleet, error)
}
