package session

import (
	"time"

	"modelgateway/shared/wire"
)

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

// RegisteredUntil returns the deadline of a session whose registration was sent
// at an instant. It is earlier than the control plane's deadline, which counts
// from when the request was received.
func RegisteredUntil(r *wire.RegisterResponse, sent Instant) Instant {
	return sent.Add(time.Duration(r.ValidMS) * time.Millisecond)
}

// ExtendedUntil returns the deadline of a session after a heartbeat that was
// sent at an instant. It returns false if the session is not extended: it has
// ended, or there are more key changes to apply first.
func ExtendedUntil(r *wire.HeartbeatResponse, sent Instant) (Instant, bool) {
	return sent.Add(time.Duration(r.ValidMS) * time.Millisecond), r.Status == wire.Done && !r.More
}
