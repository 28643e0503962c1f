package leasing

import "time"

// Retention periods of what sessions leave behind.
const (
	// SessionRetention is how long a closed session is kept: longer than the usage stream keeps events
	// (a week), and than a proxy that was switched off is likely to come back with events in its spool.
	// Later events are settled once as well, as late charges of an unknown session.
	SessionRetention = 60 * 24 * time.Hour
	// KeyChangeRetention is how long a key change is kept that all proxies have applied, for operators
	// to look at.
	KeyChangeRetention = 24 * time.Hour
)
