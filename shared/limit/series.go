package limit

import (
	"errors"
	"time"
)

// Tolerance is how long before its beginning and after its end the control plane still accepts a window: the clocks of servers
// differ, and requests wait for their decision.
const Tolerance = 10 * time.Second

// Series has the windows of one limit as the control plane knows them.
type Series struct {
	Window Window
	// Newest is the newest window that was made of a limit of the period FirstUse. Number 0: none.
	Newest Span
	// Tolerance is the constant, but in the simulation, whose windows are shorter.
	Tolerance time.Duration
}

// Current returns the window in which counts what the control plane itself admits at a time, such as a video job.
func (s *Series) Current(nowMS int64) (Span, error) {
	if s.Window.Period != FirstUse {
		return s.Window.At(nowMS)
	}
	if s.Newest.Number > 0 && nowMS < s.Newest.EndMS {
		return s.Newest, nil
	}
	return Span{s.Newest.Number + 1, nowMS, nowMS + s.Window.LengthSeconds*1000}, nil
}

// Check says whether a request may count in the window with a number, at a time of the control plane. If it may, the result is
// that window, which is made if there is none yet. Otherwise it is the window in which the request has to count, as far as that is
// known; the caller names it again.
func (s *Series) Check(number, nowMS int64) (right Span, accepted bool, err error) {
	if s.Window.Period == FirstUse {
		right, accepted = s.checkFirstUse(number, nowMS)
		return right, accepted, nil
	}

	for _, at := range []int64{nowMS, nowMS - s.Tolerance.Milliseconds(), nowMS + s.Tolerance.Milliseconds()} {
		span, err := s.Window.At(at)
		if err != nil {
			return Span{}, false, err
		}
		if at == nowMS {
			right = span
		}
		if span.Number == number {
			return span, true, nil
		}
	}

	return right, false, nil
}

// checkFirstUse is Check for the period FirstUse. There is one next window, which can begin only when the newest has ended.
func (s *Series) checkFirstUse(number, nowMS int64) (right Span, accepted bool) {
	newest, toleranceMS := s.Newest, s.Tolerance.Milliseconds()
	ended := newest.Number == 0 || nowMS >= newest.EndMS
	switch {
	case number == newest.Number && number > 0 && nowMS < newest.EndMS+toleranceMS:
		return newest, true
	case number == newest.Number+1 && (ended || nowMS >= newest.EndMS-toleranceMS):
		start := max(nowMS, newest.EndMS)
		return Span{number, start, start + s.Window.LengthSeconds*1000}, true
	case ended:
		return Span{Number: newest.Number + 1}, false
	default:
		return newest, false
	}
}

// maxLost bounds how many windows of the period FirstUse a loss of commits can have taken: the numbers that a faulty proxy names must
// not use up those of the limit.
const maxLost = 100

// ErrNeverMade is returned for a window that cannot have been made.
var ErrNeverMade = errors.New("limit: the window was never made")

// Restore returns a window that was used before Postgres lost it, because what it was charged with must be kept. The error is
// ErrNeverMade, or that of an unknown time zone.
func (s *Series) Restore(number, nowMS int64) (Span, error) {
	right, accepted, err := s.Check(number, nowMS)
	switch {
	case err != nil || accepted:
		return right, err
	case s.Window.Period == FirstUse && number > s.Newest.Number+maxLost:
		return Span{}, ErrNeverMade
	case s.Window.Period == FirstUse && number > s.Newest.Number:
		start := max(nowMS, s.Newest.EndMS)
		return Span{number, start, start + s.Window.LengthSeconds*1000}, nil
	default:
		return Span{number, nowMS, nowMS}, nil // it has ended
	}
}

// Accepts reports whether requests may count in a window that was made, at a time.
func Accepts(made Span, nowMS int64, tolerance time.Duration) bool {
	return nowMS >= made.StartMS-tolerance.Milliseconds() && (made.EndMS == 0 || nowMS < made.EndMS+tolerance.Milliseconds())
}
