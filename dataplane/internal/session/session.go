// Package session owns the proxy's registration with the control plane: it runs
// the client and the closer of package lease/session with goroutines, timers and
// the bus.
//
// A session is valid while its proxy is fresh: by the stream of changes, in which it
// sends beats that it reads back, the proxy proves that it has missed no change
// (fresh.go, session.Freshness). A session ends when the proxy reads in the stream that
// it has ended, or when a control plane says so. Heartbeats to a control plane keep the
// session open, and bring the changes with which a proxy that has lapsed is fresh again.
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
	// freshUntil is the end of the time for which the session is valid, on both clocks; nil before, and once it has ended.
	freshUntil atomic.Pointer[session.Instant]
}

// clock returns the time on both clocks.
type clock func() session.Instant

// Begin returns a session that is valid for a time from now on and is never
// extended, for tests.
func Begin(id wire.SessionID, boot string, valid time.Duration) *Session {
	s := &Session{ID: id, Boot: boot, clock: bootclock.Now}
	s.refresh(bootclock.Now().Add(valid))
	return s
}

// Valid reports whether it is certain that the proxy has missed no change, and that
// nobody has ended the session.
func (s *Session) Valid() bool {
	until := s.freshUntil.Load()
	return until != nil && s.clock().Before(*until)
}

// refresh sets until when the proxy is fresh.
func (s *Session) refresh(until session.Instant) { s.freshUntil.Store(&until) }

// Remaining returns how long the session is still valid if no message arrives; zero
// once it has ended.
func (s *Session) Remaining() time.Duration {
	until := s.freshUntil.Load()
	if until == nil {
		return 0
	}
	now := s.clock()
	return max(min(until.Mono-now.Mono, until.Boot-now.Boot), 0)
}

// end makes the session invalid for good.
func (s *Session) end() { s.freshUntil.Store(nil) }
