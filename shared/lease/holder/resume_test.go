package holder

import (
	"testing"
	"time"

	"modelgateway/shared/lease/checkpoint"
	"modelgateway/shared/wire"
)

// A process that continues in a session uses what the earlier one had left, and no more.
func TestResumedQueueAdmitsFromTheUnitsThatAreLeft(t *testing.T) {
	t.Parallel()
	s := newSparse(1, time.Hour)
	s.request(0, 0)
	s.request(time.Second, 0)
	q := s.queues[0]
	running := q.Reserve(2*time.Second, sparseNeeds) // it runs when the units are noted
	idle := q.IdleUnits(0)
	if len(idle) != 2 || idle[0].Slots || !idle[1].Slots {
		t.Fatalf("idle units: %+v; want those of balance and slots", idle)
	}
	// Units that are returned meanwhile are among those that came back.
	q.Release(running, 1200)
	used := checkpoint.Consumption{}
	used.Add("account", 1200, 1000, false)
	used.Add("account", idle[0].Units-200-2*1000, 1000, true)
	left := used.Left("account", idle)
	if left[0].Units != 2000 || left[1].Units != idle[1].Units {
		t.Fatalf("left: %+v of %+v; want 2000, and all slots", left, idle)
	}
	timing := DefaultTiming(func(time.Duration) time.Duration { return 0 })
	resumed := ResumeQueue(1, "boot", "account", left, 0, &timing, &ResponseTime{})
	first, second, third := resumed.Reserve(0, sparseNeeds), resumed.Reserve(0, sparseNeeds), resumed.Reserve(0, sparseNeeds)
	if !first.Granted() || !second.Granted() || !third.Aborted() {
		t.Errorf("granted %v, %v; aborted %v; want two granted, and the third aborted at once", first.Granted(), second.Granted(), third.Aborted())
	}
	resumed.Release(first, 0)
	if again := resumed.Reserve(0, sparseNeeds); !again.Granted() {
		t.Error("units that came back are not used again")
	}
	if out := resumed.Next(time.Hour); out.Request != nil || out.Return != nil {
		t.Errorf("a resumed queue sends %+v", out)
	}
	resumed.EndSession()
	if w := resumed.Reserve(0, sparseNeeds); w != nil && w.Granted() {
		t.Error("granted after the end of the session")
	}
}

// Units of a window that ends, or whose raise does, are not used after that time by a later process either, whose clock begins anew.
func TestResumedQueueUsesNoUnitsAfterTheEndOfTheirWindow(t *testing.T) {
	t.Parallel()
	s := newSparse(1, time.Hour)
	s.request(0, 0)
	s.request(time.Second, 0)
	q := s.queues[0]
	const zeroMS, later = 5_000_000, 5_030_000 // the zeros of the clocks of the two processes
	q.UseUntil(sparseNeeds[0].Pool, time.Minute)
	idle := q.IdleUnits(zeroMS)
	if idle[0].UntilMS != zeroMS+60_000 || idle[1].UntilMS != 0 {
		t.Fatalf("idle units: %+v; want those of the first pool to end after a minute", idle)
	}
	timing := DefaultTiming(func(time.Duration) time.Duration { return 0 })
	resumed := ResumeQueue(1, "boot", "account", idle, later, &timing, &ResponseTime{})
	if w := resumed.Reserve(30*time.Second-time.Millisecond, sparseNeeds); !w.Granted() {
		t.Error("a request before the end is not granted")
	}
	if again := resumed.IdleUnits(later); again[0].UntilMS != zeroMS+60_000 {
		t.Errorf("noted again: %+v", again)
	}
	if w := resumed.Reserve(30*time.Second, sparseNeeds); !w.Aborted() {
		t.Error("a request after the end is granted from units that were to be returned")
	}
	if again := resumed.IdleUnits(later); len(again) != 1 || again[0].Pool == idle[0].Pool {
		t.Errorf("noted after the end: %+v", again)
	}
	if w := ResumeQueue(1, "boot", "account", idle, zeroMS+60_001, &timing, &ResponseTime{}).Reserve(time.Millisecond, sparseNeeds); !w.Aborted() {
		t.Error("a process that starts after the end uses the units")
	}
}

func TestQueueInCentralModeHasNoIdleUnitsToResume(t *testing.T) {
	t.Parallel()
	s := newSparse(1, time.Hour)
	s.request(0, 0)
	q := s.queues[0]
	q.HandleRecall(wire.PoolID(1), 99)
	if idle := q.IdleUnits(0); len(idle) != 1 || !idle[0].Slots {
		t.Errorf("idle units: %+v; want only the slots", idle)
	}
	q.EndSession()
	if idle := q.IdleUnits(0); len(idle) != 0 {
		t.Errorf("idle units after the end of the session: %+v", idle)
	}
}
