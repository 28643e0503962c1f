// Package fleet shows operators the proxies: their sessions, the revisions that they have applied,
// and their load. Package leasing manages the sessions.
package fleet

import (
	"context"
	"maps"
	"time"
)

// The states of a session.
const (
	Active = "active"
	// Expired: no heartbeat has come for the window, but the session is not fenced yet.
	Expired = "expired"
	// Closed: the session has ended, and some of its usage has never arrived.
	Closed = "closed"
	// Fenced: the session gets no grants any more. Its leases are kept, because usage may still arrive.
	Fenced = "fenced"
)

// Proxy is one session of a proxy that is open, or that has left unsettled usage.
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
	// Left is the number of requests that the session has reported as started and whose usage is not settled.
	Left int64
}

// Unsettled returns the number of finished requests whose usage is not settled. A draining proxy
// is done when it has neither running requests nor unsettled usage. A session that has ended has
// left this usage on the disk of its proxy, or in the usage stream.
func (d *Proxy) Unsettled() int64 {
	if d.State == Fenced || d.State == Closed {
		return d.Left
	}
	return max(d.SpoolUsed-d.Running, 0)
}

// Unserved returns the unsettled usage of the proxies that have no active session, by name: it
// waits until the proxy is started again with its disk.
func (f *Fleet) Unserved() map[string]int64 {
	left, active := map[string]int64{}, map[string]bool{}
	for i := range f.Proxies {
		d := &f.Proxies[i]
		active[d.Name] = active[d.Name] || d.State == Active
		if n := d.Unsettled(); n > 0 {
			left[d.Name] += n
		}
	}
	maps.DeleteFunc(left, func(name string, _ int64) bool { return active[name] })
	return left
}

// Fleet is the list of open sessions, with the newest revisions.
type Fleet struct {
	// Rev is the newest revision of keys and accounts, CatalogRev of the catalog.
	Rev        int64
	CatalogRev int64
	Proxies    []Proxy
	// RefusedCredentials are the credentials that their providers refuse.
	RefusedCredentials []RefusedCredential
	// Recovering means that nothing is granted yet after a declared loss of commits. LostAt is the time of the last one; nil if
	// there was none.
	Recovering bool
	LostAt     *time.Time
}

// RefusedCredential is a credential that its provider refuses. Proxies use other credentials of the provider
// and retry this one periodically.
type RefusedCredential struct {
	Provider, Credential, CredentialID string
	// Reason is one of package wire: KeyRejected, QuotaExhausted, SourceFailing or SourceFailed.
	Reason string
	Since  time.Time
	// Proxies has the names of the proxies that report it.
	Proxies []string
}

// Store reads the fleet.
type Store interface {
	Fleet(ctx context.Context) (Fleet, error)
}
