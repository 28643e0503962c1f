package session_test

import (
	"testing"
	"time"

	"modelgateway/shared/lease/session"
)

const freshFor = 10 * time.Second

// freshProxy returns a Freshness that is fresh by a beat sent now, which the
// stream has at 5.
func freshProxy(t *testing.T, now session.Instant) *session.Freshness {
	t.Helper()
	f := session.NewFreshness(freshFor)
	b := f.Beat(now)
	if f.Fresh(now) || !f.ReadBack(now, "a", b, 5) || f.Fresh(now) {
		t.Fatal("fresh before the changes were read from Postgres")
	}
	f.Resynced(now, now)
	if !f.Fresh(now) {
		t.Fatal("not fresh after the beat and the changes of Postgres were read")
	}
	return f
}

func TestFreshnessCountsFromTheSendingTime(t *testing.T) {
	t.Parallel()
	now := session.Instant{Mono: time.Hour, Boot: 2 * time.Hour}
	f := freshProxy(t, now)
	b := f.Beat(now.Add(2 * time.Second))
	if !f.ReadBack(now.Add(9*time.Second), "a", b, 7) {
		t.Fatal("the beat does not follow the one before")
	}
	if !f.Fresh(now.Add(11*time.Second)) || f.Fresh(now.Add(12*time.Second)) {
		t.Error("want fresh until 12 s, which is the time of sending and the window")
	}
	if suspended := (session.Instant{Mono: now.Mono + time.Second, Boot: now.Boot + time.Hour}); f.Fresh(suspended) {
		t.Error("fresh after a suspension of the machine")
	}
}

func TestLapsedProxyReadsPostgresAfterItsBeat(t *testing.T) {
	t.Parallel()
	now := session.Instant{Mono: time.Hour, Boot: time.Hour}
	f := freshProxy(t, now)
	b := f.Beat(now.Add(8 * time.Second))
	later := now.Add(11 * time.Second) // the freshness has ended at 10 s
	if !f.ReadBack(later, "a", b, 7) || f.Fresh(later) {
		t.Error("fresh after a lapse by a beat alone")
	}
	f.Resynced(later.Add(time.Second), later.Add(-time.Second))
	if f.Fresh(later.Add(time.Second)) {
		t.Error("fresh by a read of Postgres that began before the beat was read")
	}
	f.Resynced(later.Add(2*time.Second), later.Add(time.Second))
	if !f.Fresh(later.Add(2 * time.Second)) {
		t.Error("not fresh although Postgres was read after the beat")
	}
}

func TestFreshnessNoticesLostMessages(t *testing.T) {
	t.Parallel()
	now := session.Instant{Mono: time.Hour, Boot: time.Hour}
	for name, read := range map[string]func(f *session.Freshness, b session.Beat) bool{
		"the sequence goes back":    func(f *session.Freshness, b session.Beat) bool { return f.ReadBack(now, "a", b, 5) },
		"another incarnation":       func(f *session.Freshness, b session.Beat) bool { return f.ReadBack(now, "b", b, 6) },
		"another beat was the last": func(f *session.Freshness, b session.Beat) bool { b.Previous = 3; return f.ReadBack(now, "a", b, 6) },
	} {
		f := freshProxy(t, now)
		if read(f, f.Beat(now)) {
			t.Errorf("%s: not noticed", name)
		}
		f.Reset()
		if f.Fresh(now) {
			t.Errorf("%s: fresh after it", name)
		}
		if b := f.Beat(now); b.Previous != 0 || !f.ReadBack(now, "b", b, 1) {
			t.Errorf("%s: the stream is not read from its start", name)
		}
	}
}

func TestConfirmationIsRepeatedWhenTheStreamHasLostTheChange(t *testing.T) {
	t.Parallel()
	now := session.Instant{Mono: time.Hour, Boot: time.Hour}
	c := session.NewConfirmation(11 * time.Second)
	at := session.Place{Incarnation: "a", Sequence: 7, ID: "x"}
	c.Appended(now, at)
	if c.Append() || c.Due(now.Add(10*time.Second)) || !c.Due(now.Add(11*time.Second)) {
		t.Error("want it due 11 s after it was appended")
	}
	c.Verified(session.Place{Incarnation: "a", Sequence: 7, ID: "y"})
	if c.Done() || !c.Append() {
		t.Error("confirmed although another message has its place")
	}
	c.Appended(now, at)
	c.Verified(at)
	if !c.Done() || c.Due(now.Add(time.Hour)) {
		t.Error("not confirmed although the stream still has it")
	}
}
