package route

import "time"

// State is what a route's breaker lets through.
type State uint8

// The states.
const (
	// Closed lets everything through.
	Closed State = iota
	// HalfOpen lets one request through, to see whether the provider is back.
	HalfOpen
	// Open lets nothing through.
	Open
)

const (
	// failuresToOpen is how many requests in a row must fail. One that failed only makes the route rest, so that
	// others go before it; where there are no others, a single broken connection must not turn everybody away.
	failuresToOpen = 10
	// firstCooldown doubles each time that a probe fails, up to maxCooldown. A pause that the provider names is kept
	// to, if it is longer.
	firstCooldown = 5 * time.Second
	maxCooldown   = time.Minute
)

// breaker decides whether requests go to one route. It is a value without a
// clock: every method returns what it becomes.
type breaker struct {
	failures int // in a row, while closed
	opened   int // how often in a row it has opened
	until    time.Time
	probing  bool // one request is on its way while half-open
}

func (b breaker) state(now time.Time) State {
	switch {
	case b.until.IsZero():
		return Closed
	case now.Before(b.until):
		return Open
	}
	return HalfOpen
}

// lets tells whether a request may go.
func (b breaker) lets(now time.Time) bool {
	state := b.state(now)
	return state == Closed || state == HalfOpen && !b.probing
}

// failed is for a request that failed at the route, which asks for a pause.
// One that began before the breaker opened says nothing new but its pause.
func (b breaker) failed(now time.Time, pause time.Duration, probe bool) breaker {
	switch b.state(now) {
	case Closed:
		if b.failures++; b.failures < failuresToOpen {
			return b
		}
	case HalfOpen:
		if !probe {
			return b
		}
	case Open:
		if until := now.Add(min(pause, maxCooldown)); until.After(b.until) {
			b.until = until
		}
		return b
	}
	cooldown := firstCooldown << min(b.opened, 4)
	return breaker{opened: b.opened + 1, until: now.Add(min(max(cooldown, pause), maxCooldown))}
}

// succeeded is for a request that the route has served. One that began before
// the breaker opened proves nothing.
func (b breaker) succeeded(now time.Time, probe bool) breaker {
	if probe || b.state(now) == Closed {
		return breaker{}
	}
	return b
}

// left is for a request that ended without saying anything of the route.
func (b breaker) left(probe bool) breaker {
	b.probing = b.probing && !probe
	return b
}
