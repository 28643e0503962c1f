package session

import (
	"time"

	"modelgateway/shared/wire"
)

// Usage is the usage log of a proxy's sessions.
type Usage interface {
	// FinishedSessions returns requests to close the sessions other than the open ones. No request starts in them
	// afterwards.
	FinishedSessions(open ...wire.SessionID) []wire.CloseRequest
	// SessionClosed drops a session that the control plane has closed.
	SessionClosed(r wire.CloseRequest)
}

// Closer closes the ended sessions of a proxy. It repeats the attempt in rounds
// until the control plane has settled the usage of each. Like a Client, it has no
// clock and sends nothing. It is not safe for concurrent use.
type Closer struct {
	timing Timing
	usage  Usage
	at     time.Duration
	// outstanding is the number of requests without an outcome, open that of the sessions that this round has not closed.
	outstanding, open int
	leaving, done     bool
}

// NewCloser returns a Closer whose first round is after one interval.
func NewCloser(now Instant, timing Timing, usage Usage) *Closer {
	return &Closer{timing: timing, usage: usage, at: now.Mono + timing.CloseInterval}
}

// Next returns the requests to send now, whose outcomes are reported to
// HandleClosed, and when Next must be called again. The open sessions have not
// ended.
func (c *Closer) Next(now Instant, open ...wire.SessionID) (requests []wire.CloseRequest, wake time.Duration) {
	if c.outstanding > 0 || c.done {
		return nil, Never
	}
	if now.Mono < c.at {
		return nil, c.at
	}

	requests = c.usage.FinishedSessions(open...)
	c.outstanding, c.open = len(requests), 0
	if len(requests) == 0 {
		c.endRound(now)
		if c.done {
			return nil, Never
		}
		return nil, c.at
	}

	return requests, Never
}

// HandleClosed reports the outcome of a request: whether the session is closed.
func (c *Closer) HandleClosed(now Instant, r wire.CloseRequest, closed bool) {
	switch {
	case r.FinalCount == wire.NotFinal: // requests run in it, whatever the control plane knows, and their end is not waited for
	case closed:
		c.usage.SessionClosed(r)
	default:
		c.open++
	}
	if c.outstanding--; c.outstanding == 0 {
		c.endRound(now)
	}
}

func (c *Closer) endRound(now Instant) {
	c.at = now.Mono + c.timing.CloseInterval
	if c.leaving {
		c.at, c.done = now.Mono+c.timing.LeaveInterval, c.open == 0
	}
}

// Close makes the Closer try at once, because a session has ended that may hold units.
func (c *Closer) Close(now Instant) { c.at = min(c.at, now.Mono) }

// Leave makes the Closer try at once and more often, because the proxy stops.
func (c *Closer) Leave(now Instant) { c.leaving, c.at = true, now.Mono }

// Done reports whether every session is closed after Leave.
func (c *Closer) Done() bool { return c.done }
