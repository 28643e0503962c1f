package usagelog

import (
	"testing"
	"time"
)

type testEvent struct{ Delivery }

// While settlement is behind, copies of events would only make the stream longer.
func TestEventsAreNotMultipliedWhileSettlementIsBehind(t *testing.T) {
	t.Parallel()
	u := New[*testEvent]()
	u.Open(1, "boot")
	const events = 10
	for n := range int64(events) {
		e := &testEvent{Delivery{Session: 1}}
		u.Add(n+1, e)
		u.Enqueue(e)
	}
	read := func(*testEvent) (int, bool) { return 1, true }
	published := func(from, to time.Duration) (count int) {
		for now := from; now < to; now += PublishInterval {
			for batch := u.NextBatch(100, 100, now, read); len(batch) > 0; batch = u.NextBatch(100, 100, now, read) {
				count += len(batch)
			}
		}
		return count
	}
	u.Hold(true)
	if got := published(0, resendHeld); got != events {
		t.Errorf("published %d times in the first hour; want each of %d events once", got, events)
	}
	if got := published(resendHeld, 2*resendHeld); got != events {
		t.Errorf("published %d times in the second hour; want %d: a hold must not last for ever", got, events)
	}
	u.Hold(false)
	if got := published(2*resendHeld, 2*resendHeld+6*time.Second); got != events {
		t.Errorf("published %d times after settlement has caught up; want %d", got, events)
	}
}
