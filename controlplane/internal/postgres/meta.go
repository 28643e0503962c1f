package postgres

import "context"

// StreamCreated notes that the usage stream was made anew. Proxies see the new
// incarnation when they renew, and publish again what is not settled.
func (db *DB) StreamCreated(ctx context.Context) error {
	return Translate("renew stream incarnation", db.q.RenewIncarnation(ctx))
}
