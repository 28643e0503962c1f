// Package bootclock reads the clocks by which a session is valid, without a system call in
// the usual case.
package bootclock

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"modelgateway/shared/lease/session"
)

var machine = clocks{read: readClocks, readBoot: readBootClock}

// Now returns the time on the monotonic and on the boot-time clock.
func Now() session.Instant { return machine.now() }

// clocks reads the monotonic and the boot-time clock. Every request asks for both several times, and the boot-time clock
// can be read only by a system call, while Go reads the monotonic and the wall clock without one.
//
// The two clocks differ only by the time that the machine has spent suspended. The kernel adds this time to the wall clock
// and to the boot-time clock at once, so while the wall clock has advanced as much as the monotonic one since a reading, the
// boot-time clock has, too. Otherwise the machine was suspended, or somebody has set the wall clock, and the boot-time clock
// is read. Slewing of the wall clock changes the monotonic clock in the same way.
//
// A suspension escapes this only if somebody sets the wall clock back by its length, to a millisecond, and only until the
// reading is reuseTime old on the monotonic clock.
type clocks struct {
	// read returns the time on the monotonic and on the wall clock, readBoot that on the boot-time clock.
	read     func() (mono, wall time.Duration)
	readBoot func() time.Duration
	last     atomic.Pointer[reading]
}

// reading has the time on all clocks at one moment.
type reading struct{ mono, wall, boot time.Duration }

const (
	// reuseTime is how long a reading of the boot-time clock is used.
	reuseTime = 100 * time.Millisecond
	// maxSkew is how much the moments at which the clocks are read may differ.
	maxSkew = time.Millisecond
)

func (c *clocks) now() session.Instant {
	mono, wall := c.read()
	if last := c.last.Load(); last != nil && last.tells(mono, wall) {
		return session.Instant{Mono: mono, Boot: last.boot + mono - last.mono}
	}
	boot := c.readBoot()
	if after, _ := c.read(); after-mono <= maxSkew { // otherwise this goroutine was interrupted, and boot is too late for mono
		c.last.Store(&reading{mono, wall, boot})
	}
	return session.Instant{Mono: mono, Boot: boot}
}

// tells reports whether the boot-time clock must have advanced as much as the monotonic clock since the reading.
func (r *reading) tells(mono, wall time.Duration) bool {
	passed := mono - r.mono
	return passed >= 0 && passed < reuseTime && (wall-r.wall-passed).Abs() <= maxSkew
}

// started is the origin of the monotonic clock.
var started = time.Now()

func readClocks() (mono, wall time.Duration) {
	t := time.Now()
	return t.Sub(started), time.Duration(t.UnixNano())
}

func readBootClock() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		// Every Linux since 2.6.39 has the clock. Without it no deadline could be trusted.
		panic("session: no boot-time clock: " + err.Error())
	}
	return time.Duration(ts.Nano())
}
