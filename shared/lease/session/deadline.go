package session

import (
	"modelgateway/shared/wire"
	"time"
)

// Instant is one moment on two clocks of a machine, as times since some moment
// of the past: Mono does not go back, and stops while the machine is suspended;
// Boot goes on then.
type Instant struct{ Mono, Boot time.Duration }

// Add is the instant later by d.
func (i Instant) Add(d time.Duration) Instant { return Instant{i.Mono + d, i.Boot + d} }

// Before tells whether the instant lies before a deadline on both clocks: a
// proxy whose machine was suspended is not to take itself for valid.
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
