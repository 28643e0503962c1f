package bootclock

import (
	"testing"
	"time"
)

// testMachine is a machine whose clocks a test moves. Each read of a clock takes a microsecond.
type testMachine struct {
	clocks
	mono, wall, boot time.Duration
	// bootReads counts the readings of the boot-time clock, inRead is called before each.
	bootReads int
	inRead    func()
}

func newTestMachine() *testMachine {
	m := &testMachine{mono: time.Hour, wall: 1000 * time.Hour, boot: 2 * time.Hour, inRead: func() {}}
	m.clocks.read = func() (mono, wall time.Duration) {
		m.run(time.Microsecond)
		return m.mono, m.wall
	}
	m.readBoot = func() time.Duration {
		m.run(time.Microsecond)
		m.bootReads++
		m.inRead()
		return m.boot
	}
	return m
}

// run lets time pass.
func (m *testMachine) run(d time.Duration) { m.mono, m.wall, m.boot = m.mono+d, m.wall+d, m.boot+d }

// suspend lets time pass while the machine is suspended.
func (m *testMachine) suspend(d time.Duration) { m.wall, m.boot = m.wall+d, m.boot+d }

// check fails the test if the clocks are not right to a millisecond.
func (m *testMachine) check(t *testing.T) {
	t.Helper()
	got := m.now()
	if (got.Mono-m.mono).Abs() > maxSkew || (got.Boot-m.boot).Abs() > maxSkew {
		t.Errorf("got %v; want %v and %v", got, m.mono, m.boot)
	}
}

func TestBootClockIsReadOncePerReuseTime(t *testing.T) {
	t.Parallel()
	m := newTestMachine()
	for range 1000 {
		m.run(time.Millisecond)
		m.check(t)
	}
	if want := int(time.Second/reuseTime) + 1; m.bootReads > want {
		t.Errorf("the boot-time clock was read %d times in a second; want %d at most", m.bootReads, want)
	}
}

func TestSuspensionIsSeenAtOnce(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{2 * time.Millisecond, time.Second, 240 * time.Hour} {
		m := newTestMachine()
		m.check(t)
		m.suspend(d)
		m.check(t)
		m.run(time.Millisecond)
		m.check(t)
	}
}

// A suspension in the middle of a reading must not make the next ones wrong.
func TestSuspensionDuringAReadingIsSeen(t *testing.T) {
	t.Parallel()
	for _, moment := range []string{"before the boot-time clock is read", "after it is read"} {
		m := newTestMachine()
		m.readBoot = func() time.Duration {
			before := m.boot
			m.suspend(time.Minute)
			if moment == "after it is read" {
				return before
			}
			return m.boot
		}
		m.now()
		m.readBoot = func() time.Duration { return m.boot }
		t.Log(moment)
		m.check(t)
	}
}

func TestReadingOfAnInterruptedGoroutineIsNotReused(t *testing.T) {
	t.Parallel()
	m := newTestMachine()
	m.inRead = func() { m.run(time.Minute) }
	m.now()
	m.inRead = func() {}
	m.check(t)
}

func TestSetWallClockChangesNothing(t *testing.T) {
	t.Parallel()
	m := newTestMachine()
	m.check(t)
	for _, d := range []time.Duration{-time.Hour, time.Hour, time.Millisecond, -time.Second} {
		m.wall += d
		m.check(t)
	}
}

// This is the one case in which a suspension is not seen at once.
func TestSuspensionWithTheWallClockSetBackIsSeenAfterTheReuseTime(t *testing.T) {
	t.Parallel()
	m := newTestMachine()
	m.check(t)
	m.suspend(time.Minute)
	m.wall -= time.Minute
	m.run(reuseTime)
	m.check(t)
}

func TestClocksAreThoseOfThisMachine(t *testing.T) {
	t.Parallel()
	for range 1000 {
		before, got, after := readBootClock(), Now(), readBootClock()
		if got.Boot < before-maxSkew || got.Boot > after+maxSkew {
			t.Fatalf("the boot-time clock is at %v; want %v to %v", got.Boot, before, after)
		}
	}
}

func TestCostsOfTheClocksIncludeNoSystemCall(t *testing.T) {
	c := clocks{read: readClocks}
	reads := 0
	c.readBoot = func() time.Duration { reads++; return readBootClock() }
	allocations := testing.AllocsPerRun(1000, func() { c.now() })
	if allocations > 0 || reads > 1000/2 {
		t.Errorf("%v allocations and %d readings of the boot-time clock", allocations, reads)
	}
}
