package leasing

import "time"

// Retention periods of closed sessions and key changes.
const (
	// SessionRetention is how long a closed session is kept. It is longer than the usage stream keeps events
	// (a week), and longer than a proxy with events in its spool is likely to be switched off.
	// Later events are settled once as well, as late charges of an unknown session.
	SessionRetention = 60 * 24 * time.Hour
	// KeyChangeRetention is how long a key change is kept after all proxies have applied it, so that
	// operators can inspect it.
	KeyChangeRetention = 24 * time.Hour
)
