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
		t.Fatal("not published in time")
	}
	if publish, _ := s.Next(time.Hour); publish {
		t.Error("two messages are under way")
	}
	s.Published(70*time.Millisecond, true)
	if publish, _ := s.Next(70 * time.Millisecond); publish {
		s.Drained(70 * time.Millisecond)
	}
	if publish, wake := s.Next(71 * time.Millisecond); publish || wake != PublishInterval {
		t.Errorf("publish: %t, wake at %v; want the regular look", publish, wake)
	}
}

func TestFailedPublicationIsRepeatedAtTheNextLookOrEvent(t *testing.T) {
	t.Parallel()
	s := NewSchedule(0)
	if publish, _ := s.Next(PublishInterval); !publish {
		t.Fatal("no regular look")
	}
	s.EventQueued(PublishInterval)
	s.Published(PublishInterval, false)
	if publish, wake := s.Next(PublishInterval); publish || wake != PublishInterval+BatchDelay {
		t.Errorf("publish: %t, wake at %v; want a moment after the event that came meanwhile", publish, wake)
	}
}
