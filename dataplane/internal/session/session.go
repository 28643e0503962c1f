// Package session owns the proxy's registration with the control plane: it runs
// the client and the closer of package lease/session with goroutines, timers and
// the bus.
//
// A session without freshness is valid until its deadline on two clocks: the monotonic clock, and the
// boot-time clock, which also runs while the machine is suspended. The deadline
// counts from when the heartbeat was sent. Key changes are applied before the
// deadline is moved. So a proxy with a valid session has applied every change that
// counts as confirmed.
//
// If the control plane asks for it, the proxy proves that it has missed no change by
// the stream of changes, in which it sends heartbeats that it reads back (fresh.go,
// session.Freshness). Then the session is valid while that holds, whatever its
// deadline is, until the proxy reads in the stream that it has ended.
package session

import (
	"sync/atomic"
	"time"

	"modelgateway/dataplane/internal/session/bootclock"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

// Session is one registration of the proxy.
type Session struct {
	ID    wire.SessionID
	Boot  string
	clock clock
	// deadline is on both clocks; nil once the session has ended. A session that needs freshness may outlive it.
	deadline atomic.Pointer[session.Instant]
	// needsFresh means that the session is valid only while the proxy is fresh, until freshUntil.
	needsFresh bool
	freshUntil atomic.Pointer[session.Instant]
}

// clock returns the time on both clocks.
type clock func() session.Instant

// Begin returns a session that is valid for a time from now on and is never
// extended, for tests.
func Begin(id wire.SessionID, boot string, valid time.Duration) *Session {
	s := &Session{ID: id, Boot: boot, clock: bootclock.Now}
	s.extend(bootclock.Now().Add(valid))
	return s
}

// Valid reports whether it is certain that the proxy has missed no change, and that
// nobody has ended the session.
func (s *Session) Valid() bool {
	until := s.until()
	return until != nil && s.clock().Before(*until)
}

// inTime reports whether the deadline lies ahead.
func (s *Session) inTime() bool {
	deadline := s.deadline.Load()
	return deadline != nil && s.clock().Before(*deadline)
}

// until returns the end of the time for which the session is valid; nil if it is
// not.
func (s *Session) until() *session.Instant {
	deadline := s.deadline.Load()
	if deadline == nil || !s.needsFresh {
		return deadline
	}
	return s.freshUntil.Load()
}

// freshFor returns for how many seconds the proxy is fresh; -1 if the session does
// not need it.
func (s *Session) freshFor() float64 {
	if !s.needsFresh {
		return -1
	}
	return s.Remaining().Seconds()
}

// refresh sets until when the proxy is fresh.
func (s *Session) refresh(until session.Instant) { s.freshUntil.Store(&until) }

// Remaining returns how long the session is still valid if nothing is heard; zero
// once it has ended.
func (s *Session) Remaining() time.Duration {
	until := s.until()
	if until == nil {
		return 0
	}
	now := s.clock()
	return max(min(until.Mono-now.Mono, until.Boot-now.Boot), 0)
}

// extend moves the deadline, also to an earlier time if the control plane has
// shortened sessions.
func (s *Session) extend(deadline session.Instant) { s.deadline.Store(&deadline) }

// end makes the session invalid for good.
func (s *Session) end() { s.deadline.Store(nil) }
