package leasing

import (
	"context"
	"time"

	"modelgateway/shared/apikey"
	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

// Store is the Service's view of Postgres. A function passed to it may run twice,
// if a transaction is repeated.
type Store interface {
	// Batch locks the pools, leases and sessions of the lease requests and returns, calls decide, and writes the changes
	// that decide made, all in one transaction.
	Batch(ctx context.Context, requests []*wire.LeaseRequest, returns []*wire.Return, decide func(*allocator.Batch)) error
	// Register inserts a session with a window.
	Register(ctx context.Context, r *wire.RegisterRequest, window time.Duration) (*wire.RegisterResponse, error)
	// Heartbeat records that the proxy of an active session may be silent for window from now on, and returns up to limit
	// changes that it has not applied. Neither waits for a change that is not committed. A session that is not active, or is
	// to end, gets the status Fenced.
	Heartbeat(ctx context.Context, r *wire.HeartbeatRequest, window time.Duration, limit int) (*wire.HeartbeatResponse, error)
	// Close fences a session. If all its events are settled, it also closes the session and frees its leases.
	Close(ctx context.Context, r *wire.CloseRequest) (closed bool, err error)
	// Sweep marks the sessions that have expired, because their proxies are silent, and closes the fenced ones that have been
	// expired for more than closeAfter. No session counts as expired before this replica has served for window in the server
	// incarnation without an absence, and none is closed before the replica could hear proxies for closeAfter: connected says
	// whether it is connected to the bus.
	Sweep(ctx context.Context, window, closeAfter time.Duration, connected bool) (closed int, err error)
	// LoadKeys returns the records of keys and the revision at which they were read. The record of an unknown key is nil.
	// A key that cannot be read is missing, and the reason is in the error.
	LoadKeys(ctx context.Context, hashes []apikey.Hash) (map[apikey.Hash]*wire.LoadKeyResponse, error)
	// Balance returns the balance of an account and the limit of one of its keys. The reserved amounts include idle
	// units and unsettled charges.
	Balance(ctx context.Context, r *wire.BalanceRequest) (*wire.BalanceResponse, error)
	// LiveSessions returns the active sessions with the names of their proxies.
	LiveSessions(ctx context.Context) (map[wire.SessionID]string, error)
	// ActiveSessions returns the sessions that may admit requests, for the barrier of a committed change. During the recovery
	// wait after a loss of commits, one entry stands for all sessions that Postgres does not know. If the change itself was
	// lost, the error is ErrChangeLost.
	ActiveSessions(ctx context.Context, c wire.KeyChange) ([]session.ActiveSession, error)
}
