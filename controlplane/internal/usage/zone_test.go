package usage

import (
	"testing"
	"time"
)

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	z, known := FindZone(name)
	if !known {
		t.Fatal(name)
	}
	return z
}

func TestDayStartsAtItsFirstMoment(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ zone, day, want string }{
		{"UTC", "2026-11-01", "2026-11-01T00:00:00Z"},
		{"Europe/Berlin", "2026-03-29", "2026-03-28T23:00:00Z"},
		{"Europe/Berlin", "2026-03-30", "2026-03-29T22:00:00Z"},
		{"Europe/Berlin", "2026-10-26", "2026-10-25T23:00:00Z"},
		{"America/New_York", "2026-11-01", "2026-11-01T04:00:00Z"},
		{"Asia/Kolkata", "2026-11-01", "2026-10-31T18:30:00Z"},
		{"Asia/Kathmandu", "2026-11-01", "2026-10-31T18:15:00Z"},
		{"Australia/Lord_Howe", "2026-10-05", "2026-10-04T13:00:00Z"}, // its summer time is half an hour
		{"Africa/Cairo", "2023-04-28", "2023-04-27T22:00:00Z"},        // the clock goes from 23:59 to 01:00
		{"America/Sao_Paulo", "2018-11-04", "2018-11-04T03:00:00Z"},   // the same
		{"America/Havana", "2022-11-06", "2022-11-06T04:00:00Z"},      // midnight comes twice
		{"Pacific/Apia", "2011-12-30", "2011-12-30T10:00:00Z"},        // there was no such day
		{"Pacific/Apia", "2011-12-31", "2011-12-30T10:00:00Z"},
	} {
		day, err := time.Parse(time.DateOnly, tt.day)
		if err != nil {
			t.Fatal(err)
		}
		if got := StartOfDay(day, zone(t, tt.zone)).UTC().Format(time.RFC3339); got != tt.want {
			t.Errorf("%s in %s starts at %s; want %s", tt.day, tt.zone, got, tt.want)
		}
	}
}

// Every moment of a year is in the day that its local date names.
func TestDaysHoldTheMomentsOfTheirDate(t *testing.T) {
	t.Parallel()
	first := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, name := range []string{"UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "Africa/Cairo", "America/Havana", "Pacific/Chatham"} {
		z := zone(t, name)
		starts := startsOfDays(first, first.AddDate(1, 0, 0), z)
		for i, start := range starts[:len(starts)-1] {
			want := first.AddDate(0, 0, i).Format(time.DateOnly)
			for at := start; at.Before(starts[i+1]); at = at.Add(15 * time.Minute) {
				if got := at.In(z).Format(time.DateOnly); got != want {
					t.Fatalf("%s: %s is on %s; want %s", name, at.UTC(), got, want)
				}
			}
		}
	}
}

func TestOnlyNamesOfZonesAreRead(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "Local", "Europe/Atlantis", "../etc/passwd", "+02:00", "CEST"} {
		if z, known := FindZone(name); known {
			t.Errorf("%q is read as %s", name, z)
		}
	}
}
