package session

import "time"

// Margin returns what is added to a time that another machine measures: clocks
// drift, and processes are scheduled late.
func Margin(d time.Duration) time.Duration { return 500*time.Millisecond + d/20 }

// Lasts returns for how long a session may be valid, by any clock, that is valid for
// d by the clock of its proxy.
func Lasts(d time.Duration) time.Duration { return d + Margin(d) }

// Reach says how far a change that is committed has come.
type Reach struct {
	// Stored means that the stream of changes has the change.
	Stored bool
	// Read means that the active sessions were read since the commit: Waiting are those that may admit without the change.
	Read    bool
	Waiting []ActiveSession
}

// Bound returns how long a proxy may still admit without the change, from now on, if
// Postgres and every control plane stop at once. It returns false if that is not known:
// a caller who gets a time relies on it.
//
// A session ends when its window has passed since the stream has stored the change:
// its proxy must read the stream beyond the change to be valid for longer. Until the
// stream has the change, it depends on Postgres when it gets it. As long as the
// sessions are not read, and while a loss of commits may hide some, nobody knows their
// windows.
func (r Reach) Bound() (bound time.Duration, known bool) {
	if !r.Read {
		return 0, false
	}

	for _, s := range r.Waiting {
		if s.Session == 0 || !r.Stored { // session 0 stands for sessions that Postgres may have lost
			return 0, false
		}
		bound = max(bound, Lasts(s.Window))
	}

	return bound, true
}
