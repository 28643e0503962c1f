package leasing

import (
	"context"
	"time"

	"modelgateway/shared/apikey"
	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

// Store is what the Service needs of Postgres. Functions passed to it may run
// twice, when a transaction is repeated.
type Store interface {
	// Batch locks everything that the ops and returns name, lets decide change it, and writes it in one transaction.
	Batch(ctx context.Context, ops []*wire.LeaseRequest, returns []*wire.Return, decide func(*allocator.Batch)) error
	// Register inserts a session, serialised with every change of keys and accounts.
	Register(ctx context.Context, r *wire.RegisterRequest, valid time.Duration) (*wire.RegisterResponse, error)
	// Renew extends an active session, serialised likewise, and returns up to limit changes that it lacks. A session
	// that is not active gets the status Fenced.
	Renew(ctx context.Context, r *wire.HeartbeatRequest, valid time.Duration, limit int) (*wire.HeartbeatResponse, error)
	// Close fences a session and, when all its events are settled, closes it and frees its leases.
	Close(ctx context.Context, r *wire.CloseRequest) (closed bool, err error)
	// Sweep fences sessions expired by more than margin, and closes those that have been silent for longer than rest.
	Sweep(ctx context.Context, margin, rest time.Duration) (fenced, closed int, err error)
	// LoadKeys reads the records of keys and the revision of the reading. An unknown key gives a nil Record; one that
	// cannot be read is missing, and in the error.
	LoadKeys(ctx context.Context, hashes []apikey.Hash) (map[apikey.Hash]*wire.LoadKeyResponse, error)
	// Balance reads the figures of an account and one of its keys.
	Balance(ctx context.Context, r *wire.BalanceRequest) (*wire.BalanceResponse, error)
	// Pending returns the sessions that may still admit without knowing revision rev, with the time that each has left.
	Pending(ctx context.Context, rev int64) ([]session.PendingSession, error)
	// Standing tells whether a change is in force still, and how long ago Postgres lost commits.
	Standing(ctx context.Context, c wire.KeyChange) (stands bool, sinceLoss time.Duration, err error)
}
