// Package await lets tests wait for a condition, a message or a response. How long that takes depends on the load of the
// machine and says nothing about the code, so a wait ends only with the time of the whole test run (`go test -timeout`).
//
// Tests whose subject is time use testing/synctest instead.
package await

import (
	"context"
	"testing"
	"time"
)

const (
	// pause is the time between two checks of a condition.
	pause = time.Millisecond
	// report is how much of the time of the test run is kept for reporting what was waited for; for short runs, a tenth.
	report = 5 * time.Second
	// endless takes the place of the deadline of a test run that has none.
	endless = 24 * time.Hour
	// bubbleYear is the year in which the clock of a bubble of testing/synctest begins.
	bubbleYear = 2000
)

// Left returns how long a wait may take: until shortly before the deadline of the test run. In a bubble of testing/synctest there
// is none, and asking for it panics.
func Left(t testing.TB) time.Duration {
	timed, ok := t.(interface{ Deadline() (time.Time, bool) })
	if ok && time.Now().UTC().Year() > bubbleYear {
		if deadline, ok := timed.Deadline(); ok {
			left := time.Until(deadline)
			return left - min(report, left/10)
		}
	}
	return endless
}

// Context returns a context that ends shortly before the deadline of the test run, and with the test. It is for calls that take
// a limit of their own, such as the five seconds of JetStream's client, if their context has none.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), Left(t))
	t.Cleanup(cancel)
	return ctx
}

// Until waits until a condition holds. It must go on to hold then: what holds only for a moment may pass by unseen. Only the
// goroutine of the test may call it.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(Left(t)); !holds(); time.Sleep(pause) {
		if time.Now().After(end) {
			t.Fatalf("waiting for %s until the time of the test run was over", what)
		}
	}
}
