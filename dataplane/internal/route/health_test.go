package route

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/shared/pulse"
)

func TestHealthFollowsTheBreakerOfARoute(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	p := New(func() time.Time { return now })
	fail := func(id string) {
		p.RecordFailure(id, "unavailable")
		if a, ok := p.Begin(id); ok {
			a.Failed(0, "acc", false)
		}
	}
	used := func(string) bool { return true }
	expect := func(what string, want ...pulse.Breaker) {
		t.Helper()
		if diff := cmp.Diff(want, p.Health(used)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	fail("a")
	for range failuresToOpen {
		fail("b")
	}
	now = now.Add(2 * time.Second)
	expect("open",
		pulse.Breaker{Route: "b", State: pulse.Open, SinceMS: 2000, NextTryMS: 3000, Class: "unavailable", FailedMS: 2000},
		pulse.Breaker{Route: "a", State: pulse.Closed, Failures: 1, Class: "unavailable", FailedMS: 2000})
	now = now.Add(3 * time.Second)
	fail("b") // the probe
	expect("open again since the first time",
		pulse.Breaker{Route: "b", State: pulse.Open, SinceMS: 5000, NextTryMS: 10_000, Class: "unavailable"},
		pulse.Breaker{Route: "a", State: pulse.Closed, Failures: 1, Class: "unavailable", FailedMS: 5000})
	now = now.Add(10 * time.Second)
	used = func(id string) bool { return id == "b" }
	expect("half-open, and the other route removed", pulse.Breaker{Route: "b", State: pulse.HalfOpen, SinceMS: 15_000, Class: "unavailable", FailedMS: 10_000})
	if a, ok := p.Begin("b"); ok {
		a.Succeeded()
	}
	expect("closed", pulse.Breaker{Route: "b", State: pulse.Closed, Class: "unavailable", FailedMS: 10_000})
}

func TestResetClosesTheBreakerOnce(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	p := New(func() time.Time { return now })
	open := func() {
		for range failuresToOpen {
			if a, ok := p.Begin("a"); ok {
				a.Failed(0, "acc", false)
			}
		}
		p.StartCooldown("a", time.Minute)
	}
	a := limitedChoice()
	a.Route.ID = "a"
	callable := func() bool { return p.breakers["a"].allows(now) && p.Pause(a) == 0 }
	open()
	if callable() {
		t.Fatal("the breaker is not open")
	}
	p.FollowResets(map[string]int64{"b": 1})
	if callable() {
		t.Error("the reset of another route has closed the breaker")
	}
	p.FollowResets(map[string]int64{"a": 1, "b": 1})
	if !callable() {
		t.Error("the reset has not closed the breaker, or the cooldown goes on")
	}
	open()
	p.FollowResets(map[string]int64{"a": 1, "b": 1}) // another change of the catalog
	if callable() {
		t.Error("the same reset has closed the breaker twice")
	}
	p.FollowResets(map[string]int64{"a": 2, "b": 1})
	if !callable() {
		t.Error("the second reset has not closed the breaker")
	}
}
