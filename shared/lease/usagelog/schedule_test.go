package usagelog

import (
	"testing"
	"time"
)

func TestScheduleWaitsForEventsToShareAMessage(t *testing.T) {
	t.Parallel()
	s := NewSchedule(0)
	first, second := 10*time.Millisecond, 40*time.Millisecond
	s.EventQueued(first)
	s.EventQueued(second)
	due := first + BatchDelay
	if publish, wake := s.Next(due - 1); publish || wake != due {
		t.Errorf("publish: %t, wake at %v; want %v, counted from the first event", publish, wake, due)
	}
	if publish, _ := s.Next(due); !publish {
		t.Fatal("the events are not published in time")
	}
	if publish, _ := s.Next(time.Hour); publish {
		t.Error("a second message is published before the first has an outcome")
	}
	s.Published(due+1, true)
	if publish, _ := s.Next(due + 1); publish {
		s.Drained(due + 1)
	}
	if publish, wake := s.Next(due + 2); publish || wake != PublishInterval {
		t.Errorf("publish: %t, wake at %v; want the regular check", publish, wake)
	}
}

func TestFailedPublicationIsRepeatedAtTheNextCheckOrEvent(t *testing.T) {
	t.Parallel()
	s := NewSchedule(0)
	if publish, _ := s.Next(PublishInterval); !publish {
		t.Fatal("nothing is published at the regular check")
	}
	s.EventQueued(PublishInterval)
	s.Published(PublishInterval, false)
	if publish, wake := s.Next(PublishInterval); publish || wake != PublishInterval+BatchDelay {
		t.Errorf("publish: %t, wake at %v; want the time after the event that was queued in the meantime", publish, wake)
	}
}
