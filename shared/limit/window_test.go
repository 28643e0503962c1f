package limit

import (
	"math/rand/v2"
	"testing"
	"time"
)

// zones have changes of the clocks at midnight, of half an hour, of a whole day, to another date, and none.
var zones = []string{
	"UTC", "Europe/Moscow", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "America/Havana", "America/Santiago", "Asia/Beirut",
	"Asia/Tehran", "Asia/Kolkata", "Asia/Amman", "Australia/Lord_Howe", "Pacific/Apia", "Pacific/Kwajalein", "Atlantic/Azores",
	"America/St_Johns", "Africa/Cairo", "America/Asuncion", "Antarctica/Troll",
}

// Every moment is in exactly one window: the windows follow each other without a gap, and each is found at both of its ends.
func TestWindowsOfTheCalendarHaveNeitherGapsNorOverlaps(t *testing.T) {
	t.Parallel()
	from, to := time.Date(1993, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2035, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, zone := range zones {
		t.Run(zone, func(t *testing.T) {
			t.Parallel()
			for _, period := range []Period{Day, Week, Month} {
				w := &Window{Period: period, TimeZone: zone}
				span, err := w.At(from.UnixMilli())
				if err != nil {
					t.Fatal(err)
				}
				for span.EndMS < to.UnixMilli() {
					next, err := w.At(span.EndMS)
					if err != nil {
						t.Fatal(err)
					}
					last, err := w.At(span.EndMS - 1)
					if err != nil {
						t.Fatal(err)
					}
					if skipped := next.Number - span.Number; next.StartMS != span.EndMS || skipped < 1 || skipped > 2 || last != span {
						t.Fatalf("%s: after %+v comes %+v, and its last moment is in %+v", period, span, next, last)
					}
					span = next
				}
			}
		})
	}
}

func TestDayBeginsAtTheFirstMomentOfItsDate(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, zone, at, start, end string }{
		{"no change", "Europe/Moscow", "2026-03-29T12:00:00+03:00", "2026-03-29T00:00:00+03:00", "2026-03-30T00:00:00+03:00"},
		{"23 hours", "Europe/Berlin", "2026-03-29T12:00:00+02:00", "2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00"},
		{"25 hours", "Europe/Berlin", "2026-10-25T12:00:00+01:00", "2026-10-25T00:00:00+02:00", "2026-10-26T00:00:00+01:00"},
		{"midnight is left out", "America/Sao_Paulo", "2018-11-04T12:00:00-02:00", "2018-11-04T01:00:00-02:00", "2018-11-05T00:00:00-02:00"},
		{"midnight comes twice", "America/Havana", "2026-11-01T00:30:00-05:00", "2026-11-01T00:00:00-04:00", "2026-11-02T00:00:00-05:00"},
		{"the last hour comes twice", "America/Sao_Paulo", "2018-02-17T23:30:00-03:00", "2018-02-17T00:00:00-02:00", "2018-02-18T00:00:00-03:00"},
		{"a day is left out", "Pacific/Apia", "2011-12-31T12:00:00+14:00", "2011-12-31T00:00:00+14:00", "2012-01-01T00:00:00+14:00"},
	} {
		w := &Window{Period: Day, TimeZone: tt.zone}
		at := func(text string) int64 {
			parsed, err := time.Parse(time.RFC3339, text)
			if err != nil {
				t.Fatal(err)
			}
			return parsed.UnixMilli()
		}
		got, err := w.At(at(tt.at))
		if err != nil || got.StartMS != at(tt.start) || got.EndMS != at(tt.end) {
			t.Errorf("%s: got %s to %s, %v", tt.name, time.UnixMilli(got.StartMS), time.UnixMilli(got.EndMS), err)
		}
	}
}

func TestWeeksBeginOnMondayAndMonthsOnTheFirst(t *testing.T) {
	t.Parallel()
	for _, zone := range zones {
		location, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(1, 2))
		for range 200 {
			at := time.Date(2012, 2, 1, 0, 0, 0, 0, time.UTC).UnixMilli() + r.Int64N(int64(20*365*24*time.Hour/time.Millisecond))
			week, err := (&Window{Period: Week, TimeZone: zone}).At(at)
			if err != nil {
				t.Fatal(err)
			}
			month, err := (&Window{Period: Month, TimeZone: zone}).At(at)
			if err != nil {
				t.Fatal(err)
			}
			if d := time.UnixMilli(week.StartMS).In(location); d.Weekday() != time.Monday || !week.Contains(at) {
				t.Errorf("%s: the week of %d begins on %s", zone, at, d)
			}
			if d := time.UnixMilli(month.StartMS).In(location); d.Day() != 1 || !month.Contains(at) {
				t.Errorf("%s: the month of %d begins on %s", zone, at, d)
			}
		}
	}
}

func TestFixedWindowsBeginAtTheAnchor(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		w := &Window{Period: Fixed, LengthSeconds: 3600 + r.Int64N(30*24*3600), AnchorUnix: r.Int64N(4e9) - 1e9}
		at := r.Int64N(3e12)
		span, err := w.At(at)
		if err != nil || !span.Contains(at) || span.Number < 0 || span.Number > maxNumber || (span.StartMS-w.AnchorUnix*1000)%(w.LengthSeconds*1000) != 0 {
			t.Fatalf("%+v at %d: got %+v, %v", w, at, span, err)
		}
		next, err := w.At(span.EndMS)
		if err != nil || next.Number != span.Number+1 || next.StartMS != span.EndMS {
			t.Fatalf("%+v: after %+v comes %+v, %v", w, span, next, err)
		}
	}
}

func TestFaultsOfAWindowAreFound(t *testing.T) {
	t.Parallel()
	for _, w := range []Window{
		{Period: Forever},
		{Period: Day, TimeZone: "Europe/Moscow"},
		{Period: Week, TimeZone: "UTC"},
		{Period: Month, TimeZone: "Asia/Kolkata"},
		{Period: Fixed, LengthSeconds: 3600, AnchorUnix: 1},
		{Period: FirstUse, LengthSeconds: 31 * 24 * 3600},
	} {
		if faults := w.Faults(); len(faults) > 0 {
			t.Errorf("%+v: %v", w, faults)
		}
	}
	for member, windows := range map[string][]Window{
		"period":    {{}, {Period: "year"}},
		"time_zone": {{Period: Day}, {Period: Day, TimeZone: "Mars/Olympus"}, {Period: Day, TimeZone: "Local"}, {Period: Forever, TimeZone: "UTC"}},
		"length_seconds": {
			{Period: Fixed, LengthSeconds: 3599}, {Period: FirstUse, LengthSeconds: 31*24*3600 + 1}, {Period: Forever, LengthSeconds: 3600},
		},
		"anchor": {{Period: FirstUse, LengthSeconds: 3600, AnchorUnix: 1}},
	} {
		for _, w := range windows {
			if faults := w.Faults(); len(faults) != 1 || faults[0].Member != member {
				t.Errorf("%+v: got %v; want a fault of %s", w, faults, member)
			}
		}
	}
}

func TestPoolsOfWindowsAreTheirLimitAndNumber(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	for range 1000 {
		limit, number := 1+r.Int64N(1<<34-1), r.Int64N(maxNumber+1)
		pool := Pool(limit, number)
		gotLimit, gotNumber, ok := OfPool(pool)
		if !ok || gotLimit != limit || gotNumber != number || pool > 999_999_999_999_999_999 {
			t.Fatalf("limit %d, number %d: got %d, %d, %v from %d", limit, number, gotLimit, gotNumber, ok, pool)
		}
	}
	for _, pool := range []int64{-1, 0, 1, 1 << 40, windowPools - 1, 2 * windowPools} {
		if _, _, ok := OfPool(pool); ok {
			t.Errorf("%d counts as the pool of a window", pool)
		}
	}
}
