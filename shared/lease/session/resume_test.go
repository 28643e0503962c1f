package session_test

import (
	"testing"
	"time"

	"modelgateway/shared/lease/session"
)

func TestResumedProxyIsFreshWhenItHasReadTheStream(t *testing.T) {
	t.Parallel()
	now := session.Instant{Mono: time.Hour, Boot: time.Hour}
	state, ok := freshProxy(t, now).State(now.Add(time.Second))
	if !ok {
		t.Fatal("no state of a fresh proxy")
	}
	later := session.Instant{Mono: time.Second, Boot: time.Hour + 4*time.Second} // another process
	f, ok := session.ResumeFreshness(freshFor, state, later)
	if !ok || f.Fresh(later) {
		t.Fatal("fresh before it has read the stream, or not resumed")
	}
	b := f.Beat(later)
	if b.Previous != 5 || !f.ReadBack(later, "a", b, 8) || !f.Fresh(later.Add(9*time.Second)) || f.Fresh(later.Add(10*time.Second)) {
		t.Errorf("beat %+v; want one behind 5, and the proxy fresh for the window", b)
	}
}

func TestResumedProxyFollowsTheLastHeartbeatOfTheEarlierProcess(t *testing.T) {
	t.Parallel()
	now := session.Instant{Mono: time.Hour, Boot: time.Hour}
	earlier := freshProxy(t, now)
	state, _ := earlier.State(now)
	unread := earlier.Beat(now.Add(3 * time.Second)) // the process ends before it reads this one
	f, _ := session.ResumeFreshness(freshFor, state, now.Add(4*time.Second))
	own := f.Beat(now.Add(4 * time.Second))
	if own.Number == unread.Number {
		t.Fatal("both processes give a beat the same number")
	}
	if !f.ReadBack(now.Add(5*time.Second), "a", unread, 7) || !f.Fresh(now.Add(9*time.Second)) || f.Fresh(now.Add(10*time.Second)) {
		t.Error("want the proxy fresh for as long as the earlier process was, which had not read this beat")
	}
}

func TestProxyThatIsNotFreshIsNotResumed(t *testing.T) {
	t.Parallel()
	now := session.Instant{Mono: time.Hour, Boot: time.Hour}
	f := freshProxy(t, now)
	state, _ := f.State(now)
	if _, ok := session.ResumeFreshness(freshFor, state, now.Add(freshFor)); ok {
		t.Error("resumed after the earlier process would have lapsed")
	}
	if _, ok := session.ResumeFreshness(freshFor, state, session.Instant{Boot: time.Minute}); ok {
		t.Error("resumed in an earlier boot of the machine")
	}
	if _, ok := f.State(now.Add(freshFor)); ok {
		t.Error("a proxy that has lapsed has a state to resume")
	}
}
