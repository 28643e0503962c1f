package session

import "time"

// Instant is a moment on two clocks of a machine, neither of which goes back.
// Mono stops while the machine is suspended; Boot does not. Each is a duration
// since an arbitrary moment.
type Instant struct{ Mono, Boot time.Duration }

// Add returns the instant that is later by d.
func (i Instant) Add(d time.Duration) Instant { return Instant{i.Mono + d, i.Boot + d} }

// Before reports whether the instant is before a deadline on both clocks: a
// proxy must not consider its session valid because Mono stopped during a
// suspension.
func (i Instant) Before(deadline Instant) bool {
	return i.Mono < deadline.Mono && i.Boot < deadline.Boot
}
