package usagelog

import "time"

// The times of a Schedule.
const (
	// BatchDelay is how long an event waits for others to share its message.
	BatchDelay = 50 * time.Millisecond
	// PublishInterval is how often a proxy looks for events that were published and not settled in time.
	PublishInterval = 500 * time.Millisecond
)

// Schedule decides when a proxy publishes usage: a moment after an event has
// come, and at intervals for events that are to be repeated; then one message
// after the other until none is due. It has no clock: the caller passes the
// time, as the reading of a clock that does not go back. It is not safe for
// concurrent use.
type Schedule struct {
	// look is when the next regular look is due, after when the events are due that wait for others, if waits is set.
	look, after time.Duration
	waits       bool
	// publishing: a message is under way. draining: another one follows it at once, unless no event is due.
	publishing, draining bool
}

// NewSchedule returns a Schedule whose first look is after one interval.
func NewSchedule(now time.Duration) *Schedule { return &Schedule{look: now + PublishInterval} }

// EventQueued records that an event was queued.
func (s *Schedule) EventQueued(now time.Duration) {
	if !s.waits {
		s.waits, s.after = true, now+BatchDelay
	}
}

// Next reports whether a message is to be published now. Its outcome is
// Published, or Drained if no event is due. Otherwise wake is when Next must be
// called again if no event comes before; zero while a message is under way.
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

// Published records the outcome of a message. After a failure the others wait
// for the next look, or for the next event.
func (s *Schedule) Published(now time.Duration, stored bool) {
	if s.publishing = false; !stored {
		s.Drained(now)
	}
}
