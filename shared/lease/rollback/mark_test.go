package rollback

import "testing"

func TestMarkShowsLoss(t *testing.T) {
	t.Parallel()
	seen := HighWaterMark{Epoch: 2, Revision: 7, Session: 3, Pool: 9}
	with := func(change func(m *HighWaterMark)) HighWaterMark {
		m := seen
		change(&m)
		return m
	}
	tests := []struct {
		name string
		now  HighWaterMark
		want bool
	}{
		{"unchanged", seen, false},
		{"further", HighWaterMark{Epoch: 2, Revision: 8, Session: 4, Pool: 10}, false},
		{"revision", with(func(m *HighWaterMark) { m.Revision-- }), true},
		{"session", with(func(m *HighWaterMark) { m.Session-- }), true},
		{"pool", with(func(m *HighWaterMark) { m.Pool-- }), true},
		{"declared", HighWaterMark{Epoch: 3}, false},
		{"an epoch lost", with(func(m *HighWaterMark) { m.Epoch = 1 }), true},
	}
	for _, tt := range tests {
		if got := seen.Lost(tt.now); got != tt.want {
			t.Errorf("%s: lost %t; want %t", tt.name, got, tt.want)
		}
		if merged := seen.Merge(tt.now); merged.Epoch == seen.Epoch && merged.Lost(seen) != (tt.name == "further") {
			t.Errorf("%s: merged into %+v", tt.name, merged)
		}
	}
}

// The mark after a declared loss is above all earlier numbers, so no replica
// that knows an earlier mark finds a loss.
func TestMarkAfterLoss(t *testing.T) {
	t.Parallel()
	seen := HighWaterMark{Epoch: 1, Revision: 70, Session: 30, Pool: 90}
	now := HighWaterMark{Epoch: 1, Revision: 40, Session: 10, Pool: 60}
	next := seen.Next(now)
	if seen.Lost(next) || seen.Merge(next).Lost(next) {
		t.Errorf("%+v counts as a loss for %+v", next, seen)
	}
	if next.Revision <= seen.Revision || next.Session <= seen.Session || next.Pool <= seen.Pool || next.Epoch != 2 {
		t.Errorf("%+v gives out numbers of %+v again", next, seen)
	}
}
