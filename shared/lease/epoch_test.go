package lease

import "testing"

func TestMarkShowsLoss(t *testing.T) {
	t.Parallel()
	seen := Mark{Epoch: 2, Rev: 7, Session: 3, Pool: 9}
	with := func(change func(m *Mark)) Mark {
		m := seen
		change(&m)
		return m
	}
	tests := []struct {
		name string
		now  Mark
		want bool
	}{
		{"as it was", seen, false},
		{"further", Mark{Epoch: 2, Rev: 8, Session: 4, Pool: 10}, false},
		{"revision", with(func(m *Mark) { m.Rev-- }), true},
		{"session", with(func(m *Mark) { m.Session-- }), true},
		{"pool", with(func(m *Mark) { m.Pool-- }), true},
		{"declared", Mark{Epoch: 3}, false},
		{"an epoch lost", with(func(m *Mark) { m.Epoch = 1 }), true},
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

// After a loss was declared, Postgres stands where nobody has seen it, and is
// sound for everyone who knew it before.
func TestMarkAfterLoss(t *testing.T) {
	t.Parallel()
	seen := Mark{Epoch: 1, Rev: 70, Session: 30, Pool: 90}
	now := Mark{Epoch: 1, Rev: 40, Session: 10, Pool: 60}
	next := seen.Next(now)
	if seen.Lost(next) || seen.Merge(next).Lost(next) {
		t.Errorf("%+v is lost to those who saw %+v", next, seen)
	}
	if next.Rev <= seen.Rev || next.Session <= seen.Session || next.Pool <= seen.Pool || next.Epoch != 2 {
		t.Errorf("%+v gives out again what %+v has given out", next, seen)
	}
}
