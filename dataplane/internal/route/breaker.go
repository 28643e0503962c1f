package route

import "time"

// breakerState is the state of a circuit breaker.
type breakerState uint8

const (
	// stateClosed: all requests may call the route.
	stateClosed breakerState = iota
	// stateHalfOpen: one request, the probe, may call the route to find out whether it works again.
	stateHalfOpen
	// stateOpen: no request may call the route.
	stateOpen
)

const (
	// failuresToOpen is how many attempts in a row must fail. A single failure only starts a cooldown, in which other
	// routes are preferred: if a route is the only one, one broken connection must not block all requests.
	failuresToOpen = 10
	// doubtfulPerAccount is how many doubtful failures of one account count, so that the requests of one cannot open the
	// breaker for all.
	doubtfulPerAccount = 2
	// firstCooldown doubles with every probe that fails, up to maxCooldown. A longer pause that the provider asks for
	// takes precedence, up to the same bound.
	firstCooldown = 5 * time.Second
	maxCooldown   = time.Minute
)

// breaker is the circuit breaker of one route. It is a value; the methods take the time and return the new value.
type breaker struct {
	failures int // in a row, while closed
	// doubtful has the hashes of the accounts of those failures that are doubtful; the first doubts are in use.
	doubtful [failuresToOpen]uint64
	doubts   int
	opened   int       // how often in a row it has opened
	since    time.Time // when it opened first
	until    time.Time
	probing  bool // the probe is running
}

func (b breaker) state(now time.Time) breakerState {
	switch {
	case b.until.IsZero():
		return stateClosed
	case now.Before(b.until):
		return stateOpen
	}
	return stateHalfOpen
}

// allows reports whether a request may call the route.
func (b breaker) allows(now time.Time) bool {
	state := b.state(now)
	return state == stateClosed || state == stateHalfOpen && !b.probing
}

// failed records a failed attempt; pause is the shortest time for which the route should get no calls. An attempt that
// began before the breaker opened can only extend the time for which it stays open.
func (b breaker) failed(now time.Time, pause time.Duration, probe bool) breaker {
	switch b.state(now) {
	case stateClosed:
		if b.failures++; b.failures < failuresToOpen {
			return b
		}
	case stateHalfOpen:
		if !probe {
			return b
		}
	case stateOpen:
		if until := now.Add(min(pause, maxCooldown)); until.After(b.until) {
			b.until = until
		}
		return b
	}

	cooldown, since := firstCooldown<<min(b.opened, 4), b.since
	if b.opened == 0 {
		since = now
	}

	return breaker{opened: b.opened + 1, since: since, until: now.Add(min(max(cooldown, pause), maxCooldown))}
}

// failedDoubtfully records a failed attempt that the request of an account may have caused. Only a few of one account
// count, and none of them keeps the breaker open.
func (b breaker) failedDoubtfully(now time.Time, pause time.Duration, probe bool, account uint64) breaker {
	if b.state(now) != stateClosed {
		return b.abandoned(probe)
	}
	of := 0
	for _, other := range b.doubtful[:b.doubts] {
		if other == account {
			of++
		}
	}
	if of == doubtfulPerAccount {
		return b
	}
	b.doubtful[b.doubts] = account
	b.doubts++
	return b.failed(now, pause, probe)
}

// succeeded records a successful attempt. An attempt that began before the breaker opened does not count.
func (b breaker) succeeded(now time.Time, probe bool) breaker {
	if probe || b.state(now) == stateClosed {
		return breaker{}
	}
	return b
}

// abandoned records the end of an attempt that showed nothing about the route.
func (b breaker) abandoned(probe bool) breaker {
	b.probing = b.probing && !probe
	return b
}
