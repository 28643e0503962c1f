package await_test

import (
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"modelgateway/shared/platform/testkit/await"
)

// run is a test in a test run that has a deadline.
type run struct {
	*testing.T
	deadline time.Time
	failed   string
}

func (r *run) Deadline() (time.Time, bool) { return r.deadline, true }

func (r *run) Fatalf(_ string, args ...any) {
	r.failed, _ = args[0].(string)
	runtime.Goexit()
}

func TestWaitEndsWithTheCondition(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		await.Until(t, "the second minute", func() bool { return time.Since(began) >= time.Minute })
		if took := time.Since(began); took != time.Minute {
			t.Errorf("waited for %s; want until the condition holds", took)
		}
	})
}

// passBubbleYear lets the clock of a bubble show a time as outside of bubbles.
func passBubbleYear() { time.Sleep(time.Until(time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC))) }

func TestWaitEndsShortlyBeforeTheTestRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		passBubbleYear()
		began := time.Now()
		r := &run{T: t, deadline: began.Add(time.Minute)}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			await.Until(r, "what never holds", func() bool { return false })
		}()
		<-ended
		if took := time.Since(began); !strings.Contains(r.failed, "what never holds") || took < 50*time.Second || took >= time.Minute {
			t.Errorf("failed with %q after %s; want it to say what it waited for just before a minute", r.failed, took)
		}
		if left := await.Left(&run{T: t, deadline: time.Now().Add(time.Second)}); left != 900*time.Millisecond {
			t.Errorf("a run of one second leaves %s; want 900ms", left)
		}
		began = time.Now()
		<-await.Context(&run{T: t, deadline: began.Add(time.Minute)}).Done()
		if took := time.Since(began); took != 55*time.Second {
			t.Errorf("the context ended after %s; want 55s", took)
		}
	})
}
