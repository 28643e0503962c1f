package usagelog

import "time"

// The times of a Schedule.
const (
	// BatchDelay is how long an event waits for others to share its message. The cost of NATS is that of messages rather
	// than of events. If the disk of a proxy is lost, so are the events that still wait.
	BatchDelay = 100 * time.Millisecond
	// PublishInterval is how often a proxy checks for events that were published and not settled in time.
	PublishInterval = 500 * time.Millisecond
)

// Schedule decides when a proxy publishes usage events: BatchDelay after an event
// was queued, and every PublishInterval for events that must be published again.
// Then one message follows another until no event is due. A Schedule has no
// clock: the caller passes the reading of a clock that does not go back. It is
// not safe for concurrent use.
type Schedule struct {
	// look is the time of the next regular check for due events. after is when the queued events are published that wait
	// for others; it counts if waits is set.
	look, after time.Duration
	waits       bool
	// publishing means that a message has no outcome yet, draining that another message follows at once unless no event
	// is due.
	publishing, draining bool
}

// NewSchedule returns a Schedule whose first regular check is after one interval.
func NewSchedule(now time.Duration) *Schedule { return &Schedule{look: now + PublishInterval} }

// EventQueued records that an event was queued.
func (s *Schedule) EventQueued(now time.Duration) {
	if !s.waits {
		s.waits, s.after = true, now+BatchDelay
	}
}

// Waits reports whether events wait for others to share their message. EventQueued has no effect until they are published.
func (s *Schedule) Waits() bool { return s.waits }

// Next reports whether a message is to be published now. Its outcome is
// Published, or Drained if no event is due. Otherwise wake is when Next must be
// called again if no event is queued before; zero while a message has no outcome.
func (s *Schedule) Next(now time.Duration) (publish bool, wake time.Duration) {
	at := s.look
	if s.waits {
		at = min(at, s.after)
	}
	switch {
	case s.publishing:
		return false, 0
	case now < at && !s.draining:
		return false, at
	}
	s.publishing, s.draining = true, true
	if s.waits && now >= s.after {
		s.waits = false
	}
	return true, 0
}

// Drained records that no event is due.
func (s *Schedule) Drained(now time.Duration) {
	s.publishing, s.draining = false, false
	if now >= s.look {
		s.look = now + PublishInterval
	}
}

// Published records whether a message was stored. After a failure, the other
// events wait for the next regular check or the next queued event.
func (s *Schedule) Published(now time.Duration, stored bool) {
	if s.publishing = false; !stored {
		s.Drained(now)
	}
}
