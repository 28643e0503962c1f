package leasestore

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"modelgateway/shared/lease/session"
)

// presence says for how long this replica could extend sessions, and for how long
// it could hear proxies.
type presence struct {
	mu sync.Mutex
	// serving lasts while Postgres serves this replica, hearing while the bus also does.
	serving, hearing session.Presence
	clock            func() session.Instant
}

func newPresence(clock func() session.Instant) presence {
	return presence{clock: clock, serving: session.NewPresence(clock()), hearing: session.NewPresence(clock())}
}

// servingFor returns for how long Postgres has served this replica without an
// absence of more than the window of sessions.
func (p *presence) servingFor(window time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.serving.For(p.clock(), max(window, leastAbsence))
}

// hearingFor returns for how long this replica could hear proxies without an
// absence of more than the window of sessions.
func (p *presence) hearingFor(window time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hearing.For(p.clock(), max(window, leastAbsence))
}

// seen records that a transaction was committed, and whether the replica was
// connected to the bus.
func (p *presence) seen(connected bool, window time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, gap := p.clock(), max(window, leastAbsence)
	p.serving.Seen(now, gap)
	if connected {
		p.hearing.Seen(now, gap)
	}
}

// leastAbsence is the shortest time without a sweep that is an absence, however short the window is: a sweep may be slow.
const leastAbsence = 10 * time.Second

// started is the origin of the monotonic clock.
var started = time.Now()

// now returns the time on the clocks of this machine.
func now() session.Instant {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		// Every Linux since 2.6.39 has the clock. Without it a suspension of the machine would not be noticed.
		panic("leasestore: no boot-time clock: " + err.Error())
	}
	return session.Instant{Mono: time.Since(started), Boot: time.Duration(ts.Nano())}
}
