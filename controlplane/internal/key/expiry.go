package key

import "time"

// expiryWarnings are how long before its expiry a key is reported, the longest first.
var expiryWarnings = []time.Duration{7 * 24 * time.Hour, 24 * time.Hour}

// NextExpiryEvent returns when, after a moment, an event about an expiry is due next: at a warning, or at the expiry itself. It is
// nil if there is none. A warning whose time is over when the expiry is set is left out: whoever set it knows.
func NextExpiryEvent(expires *time.Time, after time.Time) *time.Time {
	if expires == nil {
		return nil
	}
	for _, warning := range expiryWarnings {
		if due := expires.Add(-warning); due.After(after) {
			return &due
		}
	}
	if expires.After(after) {
		return expires
	}
	return nil
}
