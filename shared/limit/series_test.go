package limit

import (
	"math/rand/v2"
	"testing"
)

// Proxies whose clocks differ by two seconds, and one whose clock is wrong by minutes, name windows of one control plane. Each
// request finds its window after at most one answer that moves it, and no window is made twice or with a gap in the numbers.
func TestProxiesWithDifferentClocksFindTheirWindows(t *testing.T) {
	t.Parallel()
	for _, window := range []Window{
		{Period: FirstUse, LengthSeconds: 3600},
		{Period: Fixed, LengthSeconds: 3600, AnchorUnix: 17},
		{Period: Day, TimeZone: "Europe/Berlin"},
		{Period: Forever},
	} {
		r := rand.New(rand.NewPCG(7, uint64(window.LengthSeconds)))
		l := &Limit{ID: 5, Window: window}
		series := Series{Window: window, Tolerance: Tolerance}
		made := map[int64]Span{}
		offsets := []int64{-2000, 0, 2000, 240_000}
		proxies := make([]Windows, len(offsets))
		now := int64(1_792_000_000_000)
		for range 5000 {
			now += r.Int64N(120_000)
			i := r.IntN(len(proxies))
			p, clock := &proxies[i], now+offsets[i]
			for attempt := 0; ; attempt++ {
				span, err := p.Current(l, clock)
				if err != nil {
					t.Fatal(err)
				}
				right, accepted, err := series.Check(span.Number, now)
				if err != nil {
					t.Fatal(err)
				}
				if !accepted {
					if attempt == 2 {
						t.Fatalf("%s: proxy %d asks for window %d again and again; the newest is %+v", window.Period, i, span.Number, series.Newest)
					}
					p.Move(l, Pool(l.ID, right.Number), clock)
					continue
				}
				if before, known := made[right.Number]; known && before != right {
					t.Fatalf("%s: window %+v is made again as %+v", window.Period, before, right)
				}
				if !Accepts(right, now, Tolerance) {
					t.Fatalf("%s: %+v is accepted at %d", window.Period, right, now)
				}
				made[right.Number] = right
				if window.Period == FirstUse && right.Number > series.Newest.Number {
					if right.Number != series.Newest.Number+1 || right.StartMS < series.Newest.EndMS {
						t.Fatalf("after %+v comes %+v", series.Newest, right)
					}
					series.Newest = right
				}
				p.Learn(Pool(l.ID, right.Number), right.EndMS)
				break
			}
		}
		if len(made) < 2 && window.Period != Forever {
			t.Errorf("%s: only %d windows", window.Period, len(made))
		}
	}
}

func TestWindowThatHasEndedIsNotUsedAgain(t *testing.T) {
	t.Parallel()
	const start, end, toleranceMS = 3_600_000_000, 3_603_600_000, 10_000
	s := Series{Window: Window{Period: FirstUse, LengthSeconds: 3600}, Newest: Span{3, start, end}, Tolerance: Tolerance}
	for _, tt := range []struct {
		number, now int64
		want        Span
		accepted    bool
	}{
		{3, end - 1, Span{3, start, end}, true},
		{3, end + toleranceMS - 1, Span{3, start, end}, true}, // asked for by a proxy whose clock is behind
		{3, end + toleranceMS, Span{Number: 4}, false},
		{4, end - toleranceMS, Span{4, end, end + 3_600_000}, true}, // by one whose clock is ahead: it begins when the other ends
		{4, end - toleranceMS - 1, Span{3, start, end}, false},
		{4, end + 5, Span{4, end + 5, end + 3_600_005}, true},
		{2, end - 1, Span{3, start, end}, false},
		{5, end + 5, Span{Number: 4}, false},
		{9, end - 1, Span{3, start, end}, false},
	} {
		if got, accepted, err := s.Check(tt.number, tt.now); got != tt.want || accepted != tt.accepted || err != nil {
			t.Errorf("window %d at %d: got %+v, %v, %v; want %+v, %v", tt.number, tt.now-end, got, accepted, err, tt.want, tt.accepted)
		}
	}
}

// What the control plane admits itself counts in a window that it would accept from a proxy at that time.
func TestCurrentWindowIsAccepted(t *testing.T) {
	t.Parallel()
	const now = 1_792_000_000_000
	lasting, ended := Span{Number: 4, StartMS: now - 1000, EndMS: now + 1000}, Span{Number: 4, StartMS: now - 1000, EndMS: now}
	first := Window{Period: FirstUse, LengthSeconds: 3600}
	for _, tt := range []struct {
		name   string
		series Series
		want   Span
	}{
		{"for ever", Series{Window: Window{Period: Forever}}, Span{}},
		{"a day", Series{Window: Window{Period: Day, TimeZone: "UTC"}}, Span{20740, 1_791_936_000_000, 1_792_022_400_000}},
		{"the first one", Series{Window: first}, Span{1, now, now + 3_600_000}},
		{"one that lasts", Series{Window: first, Newest: lasting}, lasting},
		{"the next one", Series{Window: first, Newest: ended}, Span{5, now, now + 3_600_000}},
	} {
		tt.series.Tolerance = Tolerance
		got, err := tt.series.Current(now)
		if err != nil || got != tt.want {
			t.Errorf("%s: got %+v, %v; want %+v", tt.name, got, err, tt.want)
		}
		if right, accepted, err := tt.series.Check(got.Number, now); !accepted || right != got || err != nil {
			t.Errorf("%s: %+v is not accepted: %+v, %v", tt.name, got, right, err)
		}
	}
}
