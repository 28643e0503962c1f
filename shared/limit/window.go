package limit

import (
	"fmt"
	"sync"
	"time"
	_ "time/tzdata" // a window must not depend on the files of the machine
)

// Period is how the windows of a limit follow each other.
type Period string

// The periods.
const (
	// Forever is one window without an end.
	Forever Period = "forever"
	// Day, Week (from Monday) and Month are those of the calendar in the time zone of the window.
	Day   Period = "day"
	Week  Period = "week"
	Month Period = "month"
	// Fixed is windows of the same length, one after the other, of which one begins at the anchor.
	Fixed Period = "fixed"
	// FirstUse is windows of the same length, each from the first request after the one before has ended.
	FirstUse Period = "first_use"
)

// The bounds of the length of a window of the periods Fixed and FirstUse.
const (
	MinLength = time.Hour
	MaxLength = 31 * 24 * time.Hour
)

// Window says when the windows of a limit begin and end.
type Window struct {
	Period Period `json:"period"`
	// TimeZone is the IANA name of the time zone of a calendar period.
	TimeZone string `json:"time_zone,omitempty"`
	// LengthSeconds is the length of a window of the periods Fixed and FirstUse.
	LengthSeconds int64 `json:"length_seconds,omitempty"`
	// AnchorUnix is a time at which a window of the period Fixed begins, in seconds since 1970.
	AnchorUnix int64 `json:"anchor_unix,omitempty"`
}

// Span is one window: from a time until before another, in milliseconds since 1970. An end of zero means that the window does not
// end or, for a window of the period FirstUse, that the end is not known yet.
type Span struct {
	Number  int64 `json:"number"`
	StartMS int64 `json:"start_ms,omitempty"`
	EndMS   int64 `json:"end_ms,omitempty"`
}

// Contains reports whether a time is in the window.
func (s Span) Contains(ms int64) bool { return ms >= s.StartMS && (s.EndMS == 0 || ms < s.EndMS) }

// Length returns the length of a window of the periods Fixed and FirstUse.
func (w *Window) Length() time.Duration { return time.Duration(w.LengthSeconds) * time.Second }

// Calendar reports whether the windows are days, weeks or months.
func (w *Window) Calendar() bool { return w.Period == Day || w.Period == Week || w.Period == Month }

// Fault is what is wrong with a member of a Window, by the member's name in the API.
type Fault struct{ Member, Text string }

// Faults returns what is wrong with the window.
func (w *Window) Faults() []Fault {
	var all []Fault
	add := func(member, format string, values ...any) {
		all = append(all, Fault{member, fmt.Sprintf(format, values...)})
	}
	hasLength := w.Period == Fixed || w.Period == FirstUse
	switch w.Period {
	case Forever, Day, Week, Month, Fixed, FirstUse:
	default:
		add("period", "unknown period %q", w.Period)
	}

	if _, err := w.location(); w.Calendar() && (err != nil || w.TimeZone == "" || w.TimeZone == "Local") {
		add("time_zone", "unknown time zone %q", w.TimeZone)
	}
	if !w.Calendar() && w.TimeZone != "" {
		add("time_zone", "only a calendar period has a time zone")
	}

	switch {
	case hasLength && (w.LengthSeconds < int64(MinLength/time.Second) || w.LengthSeconds > int64(MaxLength/time.Second)):
		add("length_seconds", "the length is not between one hour and 31 days")
	case !hasLength && w.LengthSeconds != 0:
		add("length_seconds", "windows of the period %q have no length of their own", w.Period)
	}
	if w.Period != Fixed && w.AnchorUnix != 0 {
		add("anchor", "windows of the period %q have no anchor", w.Period)
	}

	return all
}

// locations has the time zones that were loaded, by name: to load one takes longer than all else here.
var locations sync.Map

func (w *Window) location() (*time.Location, error) {
	if known, ok := locations.Load(w.TimeZone); ok {
		return known.(*time.Location), nil //nolint:forcetypeassert // it has nothing else
	}
	l, err := time.LoadLocation(w.TimeZone)
	if err != nil {
		return nil, fmt.Errorf("limit: load time zone: %w", err)
	}
	locations.Store(w.TimeZone, l)
	return l, nil
}

// At returns the window that contains a time after the beginning of 1970. Windows of the period FirstUse are not determined by a
// time: see Series.
//
// The windows of a limit have neither gaps nor overlaps, also where clocks change.
func (w *Window) At(ms int64) (Span, error) {
	switch {
	case w.Period == Forever:
		return Span{}, nil
	case w.Period == Fixed && w.LengthSeconds > 0:
		length := w.LengthSeconds * 1000
		offset := mod(w.AnchorUnix*1000, length)
		number := (ms - offset + length) / length // the window with the number 1 begins at the offset
		return Span{number, offset + (number-1)*length, offset + number*length}, nil
	case w.Calendar():
		return w.calendarAt(ms)
	default:
		return Span{}, fmt.Errorf("limit: a time does not say the window of the period %q", w.Period)
	}
}

func mod(a, b int64) int64 { return (a%b + b) % b }

// calendarAt returns the window of the calendar that contains a time.
func (w *Window) calendarAt(ms int64) (Span, error) {
	location, err := w.location()
	if err != nil {
		return Span{}, err
	}
	t := time.UnixMilli(ms).In(location)
	number := w.numberOf(t.Date())
	begin := func(number int64) int64 { return startOfDay(w.firstDay(number), location).UnixMilli() }
	for begin(number+1) <= ms { // where a change of the clocks repeats or leaves out a midnight
		number++
	}
	for begin(number) > ms {
		number--
	}
	return Span{number, begin(number), begin(number + 1)}, nil
}

// numberOf returns the number of the window that has a day: days, weeks and months since the beginning of 1970.
func (w *Window) numberOf(year int, month time.Month, day int) int64 {
	days := time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix() / (24 * 60 * 60)
	switch w.Period {
	case Month:
		return int64(year-1970)*12 + int64(month) - 1
	case Week:
		return (days + 3) / 7 // 1970 began on a Thursday
	default:
		return days
	}
}

// firstDay returns the first day of a window, as a time of UTC.
func (w *Window) firstDay(number int64) time.Time {
	switch w.Period {
	case Month:
		return time.Date(1970, time.January+time.Month(number), 1, 0, 0, 0, 0, time.UTC)
	case Week:
		return time.Date(1970, time.January, int(number)*7-2, 0, 0, 0, 0, time.UTC)
	default:
		return time.Date(1970, time.January, 1+int(number), 0, 0, 0, 0, time.UTC)
	}
}

// startOfDay returns the first moment of a day in a time zone. If a change of the clocks leaves out its midnight, that is the
// change; if its midnight comes twice, the first one.
func startOfDay(day time.Time, location *time.Location) time.Time {
	t := time.Date(day.Year(), day.Month(), day.Day(), 0, 0, 0, 0, location)
	from, to := t.ZoneBounds()
	_, offset := t.Zone()
	switch local := t.Unix() + int64(offset); {
	case local < day.Unix(): // there is no midnight, and t is before the change of the clocks
		return to
	case local > day.Unix(): // or after it
		return from
	}

	if !from.IsZero() { // is there another midnight, before the last change?
		_, before := from.Add(-time.Nanosecond).Zone()
		if earlier := day.Add(-time.Duration(before) * time.Second); earlier.Before(from) {
			return earlier.In(location)
		}
	}

	return t
}
