package session_test

import (
	"testing"
	"time"

	"modelgateway/shared/lease/session"
)

func TestPresenceBeginsAgainAfterAnAbsence(t *testing.T) {
	t.Parallel()
	const gap = 10 * time.Second
	now := session.Instant{Mono: time.Hour, Boot: 2 * time.Hour}
	p := session.NewPresence(now)
	check := func(step string, want time.Duration) {
		t.Helper()
		if got := p.For(now, gap); got != want {
			t.Errorf("%s: present for %s, want %s", step, got, want)
		}
	}
	now = now.Add(9 * time.Second)
	p.Seen(now, gap)
	check("no absence so far", session.Never)
	now = now.Add(gap)
	check("not seen for the gap", 0)
	p.Seen(now, gap)
	check("seen again", 0)
	now = now.Add(9 * time.Second)
	p.Seen(now, gap)
	check("present since", 9*time.Second)
	now.Boot += time.Hour
	check("the machine was suspended", 0)
	p.Seen(now, gap)
	now = now.Add(3 * time.Second)
	check("present since it was resumed", 3*time.Second)
}

func TestSilenceThatNobodyCouldHearDoesNotCloseASession(t *testing.T) {
	t.Parallel()
	r := session.Record{State: session.Fenced, Remaining: -4 * time.Hour}
	if r.Over(14*time.Minute, 15*time.Minute) {
		t.Error("closed when its proxy could be heard for 14 minutes only")
	}
	if !r.Over(16*time.Minute, 15*time.Minute) {
		t.Error("still open when its proxy could be heard for 16 minutes")
	}
}
