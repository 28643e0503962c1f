package usagelog

import (
	"testing"
	"time"
)

func TestScheduleWaitsForEventsToShareAMessage(t *testing.T) {
	t.Parallel()
	s := NewSchedule(0)
	s.EventQueued(10 * time.Millisecond)
	s.EventQueued(40 * time.Millisecond)
	if publish, wake := s.Next(59 * time.Millisecond); publish || wake != 60*time.Millisecond {
		t.Errorf("publish: %t, wake at %v; want 50 ms after the first event", publish, wake)
	}
	if publish, _ := s.Next(60 * time.Millisecond); !publish {
		t.Fatal("the events were not published 50 ms after the first one")
	}
	if publish, _ := s.Next(time.Hour); publish {
		t.Error("a second message is published before the first has an outcome")
	}
	s.Published(70*time.Millisecond, true)
	if publish, _ := s.Next(70 * time.Millisecond); publish {
		s.Drained(70 * time.Millisecond)
	}
	if publish, wake := s.Next(71 * time.Millisecond); publish || wake != PublishInterval {
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
		t.Errorf("publish: %t, wake at %v; want 50 ms after the event that was queued in the meantime", publish, wake)
	}
}
