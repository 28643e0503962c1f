package margin

import (
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"modelgateway/shared/money"
)

func TestShareIsRoundedDown(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		charged, unknown, cost money.Nano
		want                   int64
		ok                     bool
	}{
		{1000, 0, 400, 600, true},
		{1000, 0, 1000, 0, true},
		{1000, 0, 1117, -117, true},
		{3, 0, 1, 666, true},
		{3, 0, 4, -334, true},
		{1000, 500, 250, 500, true},
		{0, 0, 5, 0, false},
		{7, 7, 5, 0, false},
		{1, 0, 1_000_000, -999_999_000, true},
	} {
		got, ok := (&Sums{Charged: tt.charged, UnknownCharged: tt.unknown, ProviderCost: tt.cost}).Share()
		if got != tt.want || ok != tt.ok {
			t.Errorf("%+v: got %d, %t", tt, got, ok)
		}
	}
	random := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		s := Sums{Charged: money.Nano(1 + random.Int64N(1<<uint(random.IntN(60)))), ProviderCost: money.Nano(random.Int64N(1 << uint(1+random.IntN(60))))}
		if s.ProviderCost/s.Charged > 1_000_000_000 {
			continue
		}
		want := new(big.Int).Mul(big.NewInt(int64(s.Margin())), big.NewInt(1000))
		want.Div(want, big.NewInt(int64(s.Charged))) // rounds down for a positive divisor
		if got, _ := s.Share(); got-want.Int64() > 1 || want.Int64()-got > 1 || s.Charged < 1<<50 && s.ProviderCost < 1<<50 && got != want.Int64() {
			t.Fatalf("%+v: got %d; want %s", s, got, want)
		}
	}
}

func TestPeriodIsCompleted(t *testing.T) {
	t.Parallel()
	day := func(n int) time.Time { return time.Date(2026, 3, n, 0, 0, 0, 0, time.UTC) }
	kiritimati, err := time.LoadLocation("Pacific/Kiritimati")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 3, 20, 15, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		q        Query
		from, to time.Time
	}{
		"no days":            {Query{}, day(14), day(21)},
		"a zone":             {Query{Zone: kiritimati}, day(15), day(22)},
		"the end":            {Query{To: day(10)}, day(3), day(10)},
		"both":               {Query{From: day(1), To: day(2)}, day(1), day(2)},
		"the same day twice": {Query{From: day(1), To: day(1)}, time.Time{}, time.Time{}},
		"too long":           {Query{From: day(1).AddDate(0, 0, -12), To: day(21)}, time.Time{}, time.Time{}},
	} {
		err := tt.q.Complete(now)
		if (err != nil) != tt.from.IsZero() || err == nil && (tt.q.From != tt.from || tt.q.To != tt.to) {
			t.Errorf("%s: got %s to %s, %v", name, tt.q.From, tt.q.To, err)
		}
	}
}
