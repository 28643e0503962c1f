package propagation

import "modelgateway/shared/wire"

// Changes are the changes that one request made and that proxies have to apply.
// The zero value means that the request made none.
type Changes struct {
	// Key is the newest change of a key or an account; nil if there is none.
	Key *wire.KeyChange
	// Effective reports that Key was announced and is effective: it need not be announced again.
	Effective bool
	// CatalogRev is the catalog revision that includes the request's changes; zero if it made none.
	CatalogRev int64
}

// AddKey adds a change of a key or an account; nil adds nothing.
func (c *Changes) AddKey(change *wire.KeyChange) {
	if change != nil && (c.Key == nil || c.Key.Revision < change.Revision) {
		c.Key, c.Effective = change, false
	}
}

// AddAnnounced adds a change of a key with the state of its propagation; nil adds nothing.
func (c *Changes) AddAnnounced(change *wire.KeyChange, confirmed *Confirmation) {
	if c.AddKey(change); change != nil && c.Key == change {
		c.Effective = confirmed.Effective
	}
}

// AddCatalog adds a change of the catalog.
func (c *Changes) AddCatalog(rev int64) { c.CatalogRev = max(c.CatalogRev, rev) }

// Empty reports whether there are no changes.
func (c *Changes) Empty() bool { return c.Key == nil && c.CatalogRev == 0 }
