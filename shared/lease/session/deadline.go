package session

import (
	"modelgateway/shared/wire"
	"time"
)

// Instant is one moment on two clocks of a machine, as durations since some
// moment of the past. Both never go back. Mono stops while the machine is
// suspended; Boot goes on.
type Instant struct{ Mono, Boot time.Duration }

// Add returns the instant that is later by d.
func (i Instant) Add(d time.Duration) Instant { return Instant{i.Mono + d, i.Boot + d} }

// Before reports whether the instant lies before a deadline on both clocks: a
// proxy whose machine was suspended must not take its session for valid.
func (i Instant) Before(deadline Instant) bool {
	return i.Mono < deadline.Mono && i.Boot < deadline.Boot
}

// RegisteredUntil returns the deadline of a session whose registration was sent
// at an instant. The control plane counts from the later moment at which it
// received the request.
func RegisteredUntil(r *wire.RegisterResponse, sent Instant) Instant {
	return sent.Add(time.Duration(r.ValidMS) * time.Millisecond)
}

// ExtendedUntil returns the deadline to which a heartbeat that was sent at an
// instant has extended the session. It returns false when the session is not
// extended, because not every change has been applied yet.
func ExtendedUntil(r *wire.HeartbeatResponse, sent Instant) (Instant, bool) {
	return sent.Add(time.Duration(r.ValidMS) * time.Millisecond), r.Status == wire.Done && !r.More
}
