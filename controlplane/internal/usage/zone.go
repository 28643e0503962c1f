package usage

import (
	"errors"
	"time"
	_ "time/tzdata" // images have no zone files

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/validation"
)

// ErrRecordsDropped is returned for days of a time zone whose usage records are not all kept. The roll-ups, which outlive
// the records, have only days of UTC.
var ErrRecordsDropped = errors.New("usage: the records of the period were dropped")

// LongestInZone bounds a period of days that are not days of UTC, in days: its sums are computed from the records.
const LongestInZone = 31

// IsUTC reports whether the days of a zone are those of the roll-ups; nil is UTC.
func IsUTC(zone *time.Location) bool { return zone == nil || zone.String() == time.UTC.String() }

// FindZone returns a time zone by its IANA name.
func FindZone(name string) (zone *time.Location, known bool) {
	zone, err := time.LoadLocation(name)
	return zone, err == nil && name != "" && name != time.Local.String()
}

// StartOfDay returns the moment at which a day begins in a zone. Only the date of day counts. A day that begins with a
// change of the clocks begins at the change; one that has two midnights, at the first.
func StartOfDay(day time.Time, zone *time.Location) time.Time {
	if IsUTC(zone) {
		return time.Date(day.Year(), day.Month(), day.Day(), 0, 0, 0, 0, time.UTC)
	}

	start := time.Date(day.Year(), day.Month(), day.Day(), 0, 0, 0, 0, zone)
	changed, next := start.ZoneBounds()
	wanted, got := day.Format(time.DateOnly), start.Format(time.DateOnly)
	if got < wanted {
		return next
	}
	if got > wanted || start.Hour() > 0 || start.Minute() > 0 {
		return changed
	}

	if changed.IsZero() {
		return start
	}
	_, now := start.Zone()
	_, before := changed.Add(-1).Zone()
	if first := start.Add(time.Duration(now-before) * time.Second); first.Before(changed) && first.Format(time.DateOnly) == wanted {
		return first
	}

	return start
}

// startsOfDays returns when each day of a period begins, and the last ends.
func startsOfDays(from, to time.Time, zone *time.Location) []time.Time {
	var starts []time.Time
	for day := from; !day.After(to); day = day.AddDate(0, 0, 1) {
		starts = append(starts, StartOfDay(day, zone))
	}
	return starts
}

// StartsOfDays returns when each day of the period begins, and the last ends.
func (q *TotalQuery) StartsOfDays() []time.Time { return startsOfDays(q.From, q.To, q.Zone) }

// CheckZone reports what a query by days that are not those of UTC lacks.
func (q *TotalQuery) CheckZone() error {
	var invalid validation.Errors
	switch {
	case IsUTC(q.Zone):
	case q.AccountID == (account.ID{}) && q.KeyID == (key.ID{}):
		invalid.Add("time_zone", "requires account_id or key_id")
	case q.From.IsZero() || q.To.IsZero():
		invalid.Add("time_zone", "requires from and to")
	case q.To.Before(q.From):
		invalid.Add("to", "must not be before from")
	case q.To.Sub(q.From) > LongestInZone*24*time.Hour:
		invalid.Add("to", "must be at most %d days after from with a time_zone other than UTC", LongestInZone)
	}
	return invalid.Err()
}
